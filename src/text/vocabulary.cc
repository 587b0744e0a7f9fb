#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "sys/error.h"

namespace braid::text {
namespace {

// A multiplicative hash over eight-byte words; tokens are short, so the tail is what counts.
uint64_t hash_of(std::string_view text, Script script) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = (text.size() << 1 | static_cast<uint64_t>(script)) * kOdd;
  size_t at = 0;
  for (uint64_t word = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
  }
  uint64_t tail = 0;
  if (text.size() > at) std::memcpy(&tail, text.data() + at, text.size() - at);
  hash = (hash ^ tail) * kOdd;
  hash ^= hash >> 32;
  hash *= kOdd;
  return hash ^ hash >> 29;
}

}  // namespace

std::optional<int32_t> Vocabulary::find(std::string_view spelling, Script script) const {
  if (slots_.empty()) return std::nullopt;
  const uint64_t hash = hash_of(spelling, script);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].tag != tag) continue;
    const Entry& entry = entries_[static_cast<size_t>(slots_[i].id)];
    if (entry.length == spelling.size() && entry.script == script &&
        std::memcmp(arena_.data() + entry.offset, spelling.data(), spelling.size()) == 0) {
      return slots_[i].id;
    }
  }
  return std::nullopt;
}

std::string_view Vocabulary::spelling(int32_t id) const {
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(entry.offset, entry.length);
}

void Vocabulary::grow() {
  slots_.assign(std::max<size_t>(1024, slots_.size() * 4), Slot{});
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < id_limit(); ++id) {
    if (!has(id)) continue;
    const uint64_t hash = hash_of(spelling(id), script(id));
    size_t i = hash & mask;
    while (slots_[i].id >= 0) i = (i + 1) & mask;
    slots_[i] = {.tag = static_cast<uint32_t>(hash >> 32), .id = id};
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
    return;
  }
  const uint64_t hash = hash_of(spelling, script);
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].id >= 0) i = (i + 1) & mask;
  slots_[i] = {.tag = static_cast<uint32_t>(hash >> 32), .id = static_cast<int32_t>(id)};
}

}  // namespace braid::text
