#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "sys/check.h"

namespace braid {
namespace {

constexpr int64_t kAlign = 64;                   // a cache line, and an AVX-512 vector
constexpr int64_t kMapping = int64_t{64} << 20;  // grow in steps that huge pages can fill

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

Arena::~Arena() {
  for (const auto& m : mappings_) munmap(m.first, static_cast<size_t>(m.second));
}

// A block of `need` bytes, which kAlign divides.
std::byte* Arena::place(int64_t need) {
  auto fits = [need](const Block& b) { return b.free && b.bytes >= need; };
  auto block = std::find_if(blocks_.begin(), blocks_.end(), fits);
  if (block == blocks_.end()) {
    const int64_t size = round_up(need, kMapping);
    void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);
    mappings_.emplace_back(static_cast<std::byte*>(data), size);
    mapped_ += size;
    blocks_.push_back({static_cast<std::byte*>(data), size, true, true});
    block = blocks_.end() - 1;
  }
  if (block->bytes > need) {
    const Block rest{block->data + need, block->bytes - need, true, false};
    block->bytes = need;
    block = blocks_.insert(block + 1, rest) - 1;
  }
  block->free = false;
  in_use_ += need;
  peak_ = std::max(peak_, in_use_);
  return block->data;
}

Arena::Slot* Arena::take(int64_t bytes) {
  CHECK(bytes >= 0, "{} bytes", bytes);
  const int64_t need = round_up(std::max<int64_t>(bytes, 1), kAlign);
  std::byte* data = place(need);
  Slot* slot = nullptr;
  if (free_slots_.empty()) {
    slot = &slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  *slot = {.arena = this, .data = data, .bytes = need, .refs = 1};
  return slot;
}

void Arena::retake(Slot* slot) {
  CHECK(!slot->data, "a slot of {} bytes has its bytes", slot->bytes);
  slot->data = place(slot->bytes);
}

void Arena::release(Slot* slot) {
  auto block = std::find_if(blocks_.begin(), blocks_.end(), [slot](const Block& b) { return b.data == slot->data; });
  CHECK(block != blocks_.end() && !block->free, "a slot of {} bytes is not in use", slot->bytes);
  in_use_ -= block->bytes;
  block->free = true;
  if (block + 1 != blocks_.end() && (block + 1)->free && !(block + 1)->first) {
    block->bytes += (block + 1)->bytes;
    block = blocks_.erase(block + 1) - 1;
  }
  if (!block->first && (block - 1)->free) {
    (block - 1)->bytes += block->bytes;
    blocks_.erase(block);
  }
  slot->data = nullptr;
  if (slot->names == 0) recycle(slot);
}

void Arena::forget(Slot* slot) {
  if (slot->refs == 0) recycle(slot);
}

void Arena::recycle(Slot* slot) { free_slots_.push_back(slot); }

}  // namespace braid
