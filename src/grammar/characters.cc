#include "grammar/characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/utf8.h"

namespace braid::grammar {
namespace {

// Ranges of characters whose UTF-8 forms have the same length, surrogates left out.
constexpr CharRange kLengths[] = {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, kCharMax}};

// The UTF-8 forms of a set of characters as one deterministic tree over their bytes, equal parts of it shared: a
// category of Unicode has hundreds of ranges.
class Utf8Tree {
 public:
  Utf8Tree(Builder& b, StateId next) : b_(b), next_(next) {}
  StateId of(const CharSet& set) {
    for (const CharRange& length : kLengths) {
      for (const CharRange& r : intersection(set, {length})) {
        std::string first, last;
        sys::append_utf8(r.first, first);
        sys::append_utf8(r.last, last);
        split(first, last, {});
      }
    }
    return forms_.empty() ? b_.any_of({}) : state(forms_, 0);
  }

 private:
  struct Bytes {
    uint8_t first = 0, last = 0;
    bool operator==(const Bytes&) const = default;
  };
  using Form = std::vector<Bytes>;  // characters whose bytes are in these ranges, whatever the others are

  static uint8_t byte(char ch) { return static_cast<uint8_t>(ch); }
  // The forms of the characters from `first` to `last`, which are equally long: where a byte differs, the rest of it at
  // either end is a range of its own (as in Russ Cox's "Regular Expression Matching in the Wild").
  void split(std::string_view first, std::string_view last, Form form) {
    const auto with = [&form](uint8_t from, uint8_t to) {
      Form longer = form;
      longer.push_back({from, to});
      return longer;
    };
    const size_t rest = first.size() - 1;
    if (rest == 0) return forms_.push_back(with(byte(first[0]), byte(last[0])));
    const std::string lowest(rest, '\x80'), highest(rest, '\xbf');
    uint8_t from = byte(first[0]), to = byte(last[0]);
    if (from == to) return split(first.substr(1), last.substr(1), with(from, to));
    if (first.substr(1) != lowest) {
      split(first.substr(1), highest, with(from, from));
      ++from;
    }
    const bool cut = last.substr(1) != highest;
    if (cut) --to;
    if (from <= to) {
      Form whole = with(from, to);
      whole.resize(whole.size() + rest, {0x80, 0xbf});
      forms_.push_back(std::move(whole));
    }
    if (cut) split(lowest, last.substr(1), with(byte(last[0]), byte(last[0])));
  }

  // What follows the first `depth` bytes of these forms, which have those in common. The forms are sorted, and two byte
  // ranges at one place are equal or disjoint.
  StateId state(std::span<const Form> forms, size_t depth) {
    if (forms[0].size() == depth) return next_;
    std::vector<ByteEdge> edges;
    while (!forms.empty()) {
      const Bytes at = forms[0][depth];
      size_t same = 1;
      while (same < forms.size() && forms[same][depth] == at) ++same;
      const StateId child = state(forms.first(same), depth + 1);
      const bool goes_on = !edges.empty() && edges.back().next == child && edges.back().last + 1 == at.first;
      if (goes_on)
        edges.back().last = at.last;
      else
        edges.push_back({at.first, at.last, child});
      forms = forms.subspan(same);
    }
    std::vector<int32_t> key;
    for (const ByteEdge& e : edges) key.insert(key.end(), {e.first, e.last, e.next});
    const auto [known, added] = known_.try_emplace(std::move(key));
    if (added) known->second = b_.bytes(std::move(edges));
    return known->second;
  }

  Builder& b_;
  StateId next_;
  std::vector<Form> forms_;
  std::map<std::vector<int32_t>, StateId> known_;
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
  const CharSet plain = spelling == Spelling::json ? intersection(set, complement(kEscaped)) : normalized(set);
  std::vector<StateId> ways{Utf8Tree(b, next).of(plain)};
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
