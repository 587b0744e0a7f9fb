#include "comm/cells.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace braid::comm::cells {
namespace {

std::atomic_ref<uint64_t> word(const std::byte* at) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(const_cast<std::byte*>(at)));
}
// Each in a line of its own: a reader of one slot does not disturb the polling of another.
const std::byte* ready_word(const std::byte* window, const Layout& layout, int slot) {
  return window + layout.slots * 2 * layout.payload + slot * 64;
}

constexpr uint64_t kFlags = 0xffffffff;
uint32_t flag_of(uint64_t number) { return static_cast<uint32_t>((number - 1) % kFlags + 1); }

}  // namespace

uint64_t key_of(uint32_t context, const Layout& layout) {
  const auto size = static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(layout.payload)));  // a power of two
  return uint64_t{context} << 32 | static_cast<uint64_t>(layout.slots) << 8 | size;
}

int64_t payload_for(int64_t bytes) {
  const auto rounded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
  return std::clamp<int64_t>(rounded, 4096, kPayloadMost);
}

void store(std::byte* window, const Layout& layout, int slot, uint64_t number, std::span<const std::byte> payload) {
  std::byte* at = window + slot * 2 * layout.payload;
  const uint64_t flag = uint64_t{flag_of(number)} << 32;
  for (size_t i = 0; i < payload.size(); i += 4, at += 8) {
    uint32_t data = 0;
    std::memcpy(&data, payload.data() + i, std::min<size_t>(4, payload.size() - i));
    word(at).store(flag | data, std::memory_order_relaxed);
  }
}

bool take(const std::byte* window, const Layout& layout, int slot, uint64_t number, std::span<std::byte> payload,
          int64_t* taken) {
  const auto bytes = static_cast<int64_t>(payload.size());
  const uint32_t flag = flag_of(number);
  for (; *taken * 4 < bytes; ++*taken) {
    const uint64_t cell = word(window + slot * 2 * layout.payload + *taken * 8).load(std::memory_order_relaxed);
    if (cell >> 32 != flag) return false;
    const auto data = static_cast<uint32_t>(cell);
    std::memcpy(payload.data() + *taken * 4, &data, static_cast<size_t>(std::min<int64_t>(4, bytes - *taken * 4)));
  }
  return true;
}

// Release and acquire: the reader's loads come before the sender's next stores.
bool may_store(const std::byte* own_window, const Layout& layout, int slot, uint64_t number) {
  return word(ready_word(own_window, layout, slot)).load(std::memory_order_acquire) == number - 1;
}
void say_taken(std::byte* own_window, std::byte* sender_window, const Layout& layout, int slot, uint64_t number) {
  if (flag_of(number) == kFlags) {
    for (int64_t at = 0; at < 2 * layout.payload; at += 8)
      word(own_window + slot * 2 * layout.payload + at).store(0, std::memory_order_relaxed);
  }
  word(ready_word(sender_window, layout, slot)).store(number, std::memory_order_release);
}

}  // namespace braid::comm::cells
