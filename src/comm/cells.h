// LL8 cells: 8 bytes of which the lower 4 are data and the upper 4 the number of the message, stored and read as one.
// A reader that sees the number it waits for has the data: no fence, no second message and no barrier.
//
// A window is the memory of a rank that its peers store into. It has slots for cells, each of which only one peer ever
// stores to, and for each slot a word `ready`: the number of this rank's last message over that slot which its reader
// has taken. Message n may be stored when ready is n - 1. Numbers of messages start at 1 and have 64 bits. A cell has
// room for 32: it holds the number modulo 2^32 - 1, from 1 on, because windows are 0 at first. Before that begins again
// the reader clears its slot, so that no cell of a message long ago is taken for a new one.
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
// Of the window with this layout that a group's ranks have (Transport::window).
uint64_t key_of(uint32_t context, const Layout& layout);

// Slots for messages of so many bytes are as large as the next power of two: calls of about one size share a window.
int64_t payload_for(int64_t bytes);
inline int64_t wire_bytes(int64_t payload) { return (payload + 3) / 4 * 8; }

// All of a message into a slot; bytes for a transport without windows are a window with one slot.
void store(std::byte* window, const Layout& layout, int slot, uint64_t number, std::span<const std::byte> payload);
// Takes the cells that have arrived, from the *taken-th on. True when that was the last one.
bool take(const std::byte* window, const Layout& layout, int slot, uint64_t number, std::span<std::byte> payload,
          int64_t* taken);

// What the sender knows of a slot of its own, and the reader, with its own window, says to the sender.
bool may_store(const std::byte* own_window, const Layout& layout, int slot, uint64_t number);
void say_taken(std::byte* own_window, std::byte* sender_window, const Layout& layout, int slot, uint64_t number);

}  // namespace braid::comm::cells
