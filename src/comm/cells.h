// LL8 cells: 8 bytes of which the lower 4 are data and the upper 4 the number of the message, stored and read as one.
// A reader that sees the number it waits for has the data: no fence, no second message and no barrier.
//
// A window is the memory of a rank that its peers store into. It has slots for cells, each of which only one peer ever
// stores to, and for each slot a word `ready`: the number of this rank's last message over that slot which its reader
// has taken. Message n may be stored when ready is n - 1. Numbers start at 1 and windows at 0. Numbers wrap after 2^32
// messages, when no old ones are left.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace braid::comm::cells {

constexpr int64_t kPayloadMost = 1 << 20;  // bytes of data in a slot: larger messages go in pieces

// The layout of a window: all slots hold messages of up to `payload` bytes.
struct Layout {
  int slots = 0;
  int64_t payload = 0;
  int64_t bytes() const { return slots * (2 * payload + 64); }
};

// Slots for messages of so many bytes are as large as the next power of two: calls of about one size share a window.
int64_t payload_for(int64_t bytes);
inline int64_t wire_bytes(int64_t payload) { return (payload + 3) / 4 * 8; }

// All of a message into a slot; bytes for a transport without windows are a window with one slot.
void store(std::byte* window, const Layout& layout, int slot, uint32_t number, std::span<const std::byte> payload);
// Takes the cells that have arrived, from the *taken-th on. True when that was the last one.
bool take(const std::byte* window, const Layout& layout, int slot, uint32_t number, std::span<std::byte> payload,
          int64_t* taken);

// What the sender knows of a slot of its own, and the reader says to the sender.
bool may_store(const std::byte* own_window, const Layout& layout, int slot, uint32_t number);
void say_taken(std::byte* sender_window, const Layout& layout, int slot, uint32_t number);

}  // namespace braid::comm::cells
