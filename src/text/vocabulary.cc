#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "sys/error.h"

namespace braid::text {
namespace {

constexpr int kSlotShift = 24;

uint64_t head_of(std::string_view text) {
  uint64_t head = 0;
  if (text.size() >= 8) {
    std::memcpy(&head, text.data(), 8);
  } else {
    for (size_t i = text.size(); i-- > 0;) head = head << 8 | static_cast<unsigned char>(text[i]);
  }
  return head;
}

}  // namespace

// A multiplicative hash over eight-byte words; most tokens are one word.
uint64_t Vocabulary::hash_of(std::string_view text) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = text.size() * kOdd;
  for (size_t at = 0; at < text.size(); at += 8) {
    hash = (hash ^ head_of(text.substr(at))) * kOdd;
    hash ^= hash >> 32;
  }
  return hash * kOdd;
}

// The low bits of a multiplicative hash are weak, so the slot index is taken from the middle.
Vocabulary::Slot Vocabulary::key_of(std::string_view spelling, Script script, uint64_t hash) {
  const auto low = static_cast<uint32_t>(std::min<size_t>(spelling.size(), 255) << 1 | static_cast<size_t>(script));
  return {.head = head_of(spelling), .tag = static_cast<uint32_t>(hash >> 55) << 9 | low};
}

std::optional<int32_t> Vocabulary::find(std::string_view spelling, Script script, uint64_t hash) const {
  if (slots_.empty()) return std::nullopt;
  const Slot key = key_of(spelling, script, hash);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash >> kSlotShift & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].head != key.head || slots_[i].tag != key.tag) continue;
    if (spelling.size() <= 8 || this->spelling(slots_[i].id) == spelling) return slots_[i].id;
  }
  return std::nullopt;
}

std::string_view Vocabulary::spelling(int32_t id) const {
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(entry.offset, entry.length);
}

void Vocabulary::insert(int32_t id) {
  const uint64_t hash = hash_of(spelling(id));
  const size_t mask = slots_.size() - 1;
  size_t i = hash >> kSlotShift & mask;
  while (slots_[i].id >= 0) i = (i + 1) & mask;
  slots_[i] = key_of(spelling(id), script(id), hash);
  slots_[i].id = id;
}

void Vocabulary::grow() {
  slots_.assign(std::max<size_t>(1024, slots_.size() * 4), Slot{});
  for (int32_t id = 0; id < id_limit(); ++id) {
    if (has(id)) insert(id);
  }
}

void Vocabulary::add(std::string_view spelling, Script script, int64_t id, const std::string& where) {
  if (id < 0 || id > kTokenIdMax) {
    fail(where, {.what = "token id out of range",
                 .got = fmt::format("{} for '{}'", id, printable(spelling, 60)),
                 .expected = fmt::format("0 to {}", kTokenIdMax)});
  }
  if (arena_.size() + spelling.size() > std::numeric_limits<uint32_t>::max()) {
    fail(where, {.what = "vocabulary too large", .expected = "under 4 GiB of token text"});
  }
  if (has(static_cast<int32_t>(id))) {
    fail(where, {.what = fmt::format("token id {} is given twice", id), .got = printable(spelling, 60)});
  }
  if (find(spelling, script)) fail(where, {.what = "a token is listed twice", .got = printable(spelling, 60)});
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  entries_[index] = {.offset = static_cast<uint32_t>(arena_.size()),
                     .length = static_cast<uint32_t>(spelling.size()),
                     .script = script,
                     .used = true};
  arena_ += spelling;
  ++count_;
  if (static_cast<size_t>(count_) * 2 > slots_.size()) {
    grow();
  } else {
    insert(static_cast<int32_t>(id));
  }
}

}  // namespace braid::text
