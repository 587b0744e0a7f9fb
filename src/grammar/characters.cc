#include "grammar/characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "sys/utf8.h"

namespace braid::grammar {
namespace {

// Ranges of characters whose UTF-8 forms have the same length, surrogates left out.
constexpr CharRange kLengths[] = {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, kCharMax}};

// The bytes of all characters from `first` to `last`, which are equally long: where a byte differs, the rest of it at
// either end is a range of its own (as in Russ Cox's "Regular Expression Matching in the Wild").
class Utf8Ranges {
 public:
  Utf8Ranges(Builder& b, StateId next) : b_(b), next_(next) {}
  StateId of(const CharRange& range) {
    std::string first, last;
    sys::append_utf8(range.first, first);
    sys::append_utf8(range.last, last);
    return split(first, last);
  }

 private:
  static uint8_t byte(char ch) { return static_cast<uint8_t>(ch); }
  // `count` continuation bytes.
  StateId any(size_t count) {
    if (count == 0) return next_;
    if (any_[count] < 0) any_[count] = b_.byte(0x80, 0xbf, any(count - 1));
    return any_[count];
  }
  StateId split(std::string_view first, std::string_view last) {
    const size_t rest = first.size() - 1;
    if (rest == 0) return b_.byte(byte(first[0]), byte(last[0]), next_);
    if (first[0] == last[0]) return b_.byte(byte(first[0]), byte(last[0]), split(first.substr(1), last.substr(1)));
    const std::string lowest(rest, '\x80'), highest(rest, '\xbf');
    std::vector<ByteEdge> edges;
    uint8_t from = byte(first[0]), to = byte(last[0]);
    if (first.substr(1) != lowest) edges.push_back({from, from, split(first.substr(1), highest)}), ++from;
    const bool cut = last.substr(1) != highest;
    if (cut) --to;
    if (from <= to) edges.push_back({from, to, any(rest)});
    if (cut) edges.push_back({byte(last[0]), byte(last[0]), split(lowest, last.substr(1))});
    return b_.bytes(std::move(edges));
  }

  Builder& b_;
  StateId next_;
  std::array<StateId, 4> any_{-1, -1, -1, -1};
};

// What a JSON string cannot hold as it is.
const CharSet kEscaped = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};

std::string escape_of(char32_t ch) {
  constexpr std::string_view kValues = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  const size_t at = kValues.find(static_cast<char>(ch));
  return at == kValues.npos ? fmt::format("\\u{:04x}", static_cast<uint32_t>(ch)) : std::string("\\") + kNames[at];
}

StateId hex(Builder& b, StateId next) { return b.bytes({{'0', '9', next}, {'a', 'f', next}, {'A', 'F', next}}); }

}  // namespace

CharSet normalized(CharSet set) {
  std::sort(set.begin(), set.end(), [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  CharSet out;
  for (const CharRange& r : set) {
    if (r.first > r.last) continue;
    if (!out.empty() && r.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, r.last);
    else
      out.push_back(r);
  }
  return out;
}

CharSet complement(const CharSet& set) {
  CharSet out;
  char32_t from = 0;
  for (const CharRange& r : normalized(set)) {
    if (r.first > from) out.push_back({from, r.first - 1});
    from = r.last + 1;
  }
  if (from <= kCharMax) out.push_back({from, kCharMax});
  return out;
}

CharSet intersection(const CharSet& a, const CharSet& b) {
  CharSet outside = complement(a);
  const CharSet other = complement(b);
  outside.insert(outside.end(), other.begin(), other.end());
  return complement(outside);
}

StateId character(Builder& b, const CharSet& set, Spelling spelling, StateId next) {
  Utf8Ranges utf8(b, next);
  std::vector<StateId> ways;
  const CharSet plain = spelling == Spelling::json ? intersection(set, complement(kEscaped)) : normalized(set);
  for (const CharRange& length : kLengths) {
    for (const CharRange& r : intersection(plain, {length})) ways.push_back(utf8.of(r));
  }
  if (spelling == Spelling::json) {
    std::vector<std::string> escapes;
    for (const CharRange& r : intersection(set, kEscaped)) {
      for (char32_t ch = r.first; ch <= r.last; ++ch) escapes.push_back(escape_of(ch));
    }
    if (!escapes.empty()) ways.push_back(b.literals(escapes, next));
  }
  return b.any_of(ways);
}

StateId json_character(Builder& b, StateId next) {
  const StateId hex1 = hex(b, next), hex2 = hex(b, hex1), hex3 = hex(b, hex2);
  const StateId low = b.literal("\\u", b.bytes({{'d', 'd', b.bytes({{'c', 'f', hex2}, {'C', 'F', hex2}})},
                                                {'D', 'D', b.bytes({{'c', 'f', hex2}, {'C', 'F', hex2}})}}));
  const StateId low1 = hex(b, low), low2 = hex(b, low1);
  const StateId after_d = b.bytes({{'0', '7', hex2}, {'8', '9', low2}, {'a', 'b', low2}, {'A', 'B', low2}});
  const StateId digits = b.bytes({{'0', '9', hex3},
                                  {'a', 'c', hex3},
                                  {'A', 'C', hex3},
                                  {'e', 'f', hex3},
                                  {'E', 'F', hex3},
                                  {'d', 'd', after_d},
                                  {'D', 'D', after_d}});
  std::vector<ByteEdge> names{{'u', 'u', digits}};
  for (const char ch : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'})
    names.push_back({static_cast<uint8_t>(ch), static_cast<uint8_t>(ch), next});
  const StateId escape = b.byte('\\', '\\', b.bytes(std::move(names)));
  return b.any_of({character(b, complement(kEscaped), Spelling::plain, next), escape});
}

}  // namespace braid::grammar
