#include "grammar/regex.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include "grammar/categories.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/utf8.h"

namespace braid::grammar {
namespace {

constexpr size_t kPatternBytesMax = 16384;
constexpr int kGroupDepthMax = 64;
constexpr int64_t kCountMax = 1'000'000;

const CharSet kDigits = {{'0', '9'}};
const CharSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpace = {{'\t', '\r'}, {' ', ' '}};

// Some validators take the classes as ASCII, as JavaScript does but for spaces, others as Unicode: what is written is a
// digit for all of them, or for none.
CharSet widest(char letter) {
  const bool digits = letter == 'd', space = letter == 's';
  CharSet out = digits ? kDigits : space ? CharSet{{'\t', '\r'}, {0x1c, ' '}, {0x85, 0x85}, {0xfeff, 0xfeff}} : kWord;
  for (const char* name : {"Nd", "Z", "L", "M", "N", "Pc"}) {
    const bool here = std::string_view(name) == "Nd"  ? digits
                      : std::string_view(name) == "Z" ? space
                                                      : !digits && !space;
    if (!here) continue;
    const CharSet more = category(name).value_or(CharSet{});
    out.insert(out.end(), more.begin(), more.end());
  }
  return normalized(std::move(out));
}
// \d \w \s and, in capitals, what is none of them. Inside a negated class the widest set is what makes it narrow.
CharSet class_of(char letter, bool in_negated) {
  const bool capital = letter < 'a';
  const char small = capital ? static_cast<char>(letter - 'A' + 'a') : letter;
  const CharSet set = capital != in_negated ? widest(small) : small == 'd' ? kDigits : small == 's' ? kSpace : kWord;
  return capital ? complement(set) : set;
}

// For JavaScript \r and the separators end a line too, for others they are characters like any.
const CharSet kNoNewline = {{0, '\n' - 1}, {'\n' + 1, '\r' - 1}, {'\r' + 1, 0x2027}, {0x202a, kCharMax}};

int64_t product(int64_t a, int64_t b) {
  return a < 0 || b < 0 ? (a == 0 || b == 0 ? 0 : kUnbounded) : std::min(a * b, int64_t{1} << 40);
}
int64_t sum(int64_t a, int64_t b) { return a < 0 || b < 0 ? kUnbounded : std::min(a + b, int64_t{1} << 40); }

}  // namespace

class RegexParser {
 public:
  using Node = Regex::Node;
  RegexParser(std::string_view text, std::string_view where, bool search)
      : text_(text), where_(where), search_(search) {}

  Regex parse() {
    if (text_.size() > kPatternBytesMax)
      refuse(fmt::format("an expression of {} bytes; expected at most {}", text_.size(), kPatternBytesMax));
    if (sys::utf8_valid_prefix(text_) != text_.size()) refuse("text that is not UTF-8");
    choice(0);
    if (at_ < text_.size()) refuse("a ) without its (");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(where_, {.what = fmt::format("the regular expression has {} at byte {}", what, std::min(at_, text_.size())),
                  .got = printable(text_, 80)});
  }
  bool more() const { return at_ < text_.size(); }
  bool take(char ch) {
    if (!more() || text_[at_] != ch) return false;
    ++at_;
    return true;
  }
  int32_t add(Node node) {
    out_.nodes_.push_back(std::move(node));
    return static_cast<int32_t>(out_.nodes_.size()) - 1;
  }

  int32_t choice(int depth) {
    if (depth > kGroupDepthMax) refuse(fmt::format("groups nested deeper than {}", kGroupDepthMax));
    std::vector<int32_t> ways{sequence(depth)};
    while (take('|')) ways.push_back(sequence(depth));
    return ways.size() == 1 ? ways[0] : add({.kind = Node::Kind::choice, .children = std::move(ways)});
  }
  int32_t sequence(int depth) {
    std::vector<int32_t> parts;
    const bool outer = search_ && depth == 0, anchored = depth == 0 && take('^');
    if (outer && !anchored) parts.push_back(anything());
    bool ends = false;
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      if (text_[at_] == '$' && depth == 0 && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) {
        ++at_;
        ends = true;
        break;
      }
      parts.push_back(quantified(atom(depth)));
    }
    if (outer && !ends) parts.push_back(anything());
    return parts.size() == 1 ? parts[0] : add({.kind = Node::Kind::sequence, .children = std::move(parts)});
  }
  int32_t anything() {
    const int32_t any = set({{0, kCharMax}});
    return add({.kind = Node::Kind::repeat, .children = {any}});
  }
  int32_t quantified(int32_t body) {
    int64_t min = 0, max = kUnbounded;
    if (take('?'))
      max = 1;
    else if (take('+'))
      min = 1;
    else if (!take('*') && !counts(min, max))
      return body;
    (void)take('?');  // lazy
    int64_t further = 0, unused = 0;
    if ((more() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) || counts(further, unused))
      refuse("a repetition of a repetition");
    return add({.kind = Node::Kind::repeat, .children = {body}, .min = min, .max = max});
  }
  bool number(int64_t& out) {
    const char* begin = text_.data() + at_;
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), out);
    if (status != std::errc{} || end == begin || out < 0) return false;
    if (out > kCountMax) refuse(fmt::format("a count above {}", kCountMax));
    at_ += static_cast<size_t>(end - begin);
    return true;
  }
  // {m}, {m,} or {m,n}; other braces are literal, but for {,n}, which some validators take for counts.
  bool counts(int64_t& min, int64_t& max) {
    const size_t begin = at_;
    if (!take('{')) return false;
    if (take(',')) {
      (void)number(max);
      if (take('}')) refuse("counts without the smaller one; expected {0,n},");
      return at_ = begin, false;
    }
    bool good = number(min);
    if (good && take(',')) {
      max = kUnbounded;
      if (more() && text_[at_] != '}') good = number(max);
    } else {
      max = min;
    }
    if (!good || !take('}')) return at_ = begin, false;
    if (max != kUnbounded && max < min) refuse("counts in the wrong order");
    return true;
  }
  int32_t set(CharSet chars) { return add({.kind = Node::Kind::set, .set = normalized(std::move(chars))}); }
  int32_t atom(int depth) {
    if (take('(')) {
      if (take('?') && !take(':')) {
        const bool named = take('P') ? take('<') : take('<') && more() && text_[at_] != '=' && text_[at_] != '!';
        const size_t end = text_.find('>', at_);
        if (!named || end == text_.npos) refuse("a group of a kind that is not supported (look-around, flags)");
        at_ = end + 1;
      }
      const int32_t inside = choice(depth + 1);
      if (!take(')')) refuse("a ( without its )");
      return inside;
    }
    if (take('[')) return set(char_class());
    if (take('.')) return set(kNoNewline);
    if (text_[at_] == '\\') return set(escape());
    if (std::string_view("*+?^$").find(text_[at_]) != std::string_view::npos)
      refuse(fmt::format("'{}' where it is not supported", text_[at_]));
    const char32_t ch = literal();
    return set({{ch, ch}});
  }
  char32_t literal() {
    const sys::Utf8Step step = sys::utf8_step(text_, at_);
    at_ += step.length;
    return step.value;
  }
  CharRange hex(size_t digits) {
    uint32_t value = 0;
    const std::string_view part = text_.substr(std::min(at_, text_.size()), digits);
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value, 16);
    if (part.size() != digits || status != std::errc{} || end != part.data() + digits)
      refuse("a bad hexadecimal escape");
    at_ += digits;
    return {value, value};
  }
  // After \u: four digits, or twice that for one character beyond them. Half of those is in no text: classes may name
  // it beside others.
  CharRange code_unit(bool in_class) {
    const char32_t unit = hex(4).first;
    if (!is_half({unit, unit})) return {unit, unit};
    if (unit < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      const size_t after = at_;
      at_ += 2;
      const char32_t low = hex(4).first, both = 0x10000 + ((unit - 0xd800) << 10U) + (low - 0xdc00);
      if (low >= 0xdc00 && low <= 0xdfff) return {both, both};
      at_ = after;
    }
    if (!in_class) refuse("half a surrogate pair");
    return {unit, unit};
  }
  static bool is_half(const CharRange& r) { return r.first >= 0xd800 && r.last <= 0xdfff; }
  // After \p: {Name}, or the one letter of a category.
  CharSet property() {
    const size_t begin = at_;
    const bool named = take('{');
    const size_t end = named ? text_.find('}', at_) : std::min(at_ + 1, text_.size());
    if (end == text_.npos) refuse("a \\p{ without its }");
    std::string_view name = text_.substr(at_, end - at_);
    for (const std::string_view prefix : {"General_Category=", "gc="}) {
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    }
    std::optional<CharSet> set = category(name);
    at_ = begin;
    if (!set)
      refuse(fmt::format("\\p of '{}'; expected a general category of Unicode, as in \\p{{Lu}} or \\p{{L}},", name));
    at_ = named ? end + 1 : end;
    return *std::move(set);
  }
  // After the backslash's place: one character, or a class.
  CharSet escape(bool in_class = false, bool in_negated = false) {
    ++at_;
    if (!more()) refuse("a backslash at its end");
    const char32_t ch = literal();
    switch (ch) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S':
        return class_of(static_cast<char>(ch), in_negated);
      case 'p':
        return property();
      case 'P':
        return complement(property());
      case 'x':
        return {hex(2)};
      case 'u':
        return {code_unit(in_class)};
      default:
        break;
    }
    constexpr std::string_view kNames = "nrtfv0", kValues{"\n\r\t\f\v\0", 6};
    const size_t at = ch < 0x80 ? kNames.find(static_cast<char>(ch)) : kNames.npos;
    if (at != kNames.npos) return {{static_cast<char32_t>(kValues[at]), static_cast<char32_t>(kValues[at])}};
    const bool letter = (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z');
    if (letter) refuse(fmt::format("the escape \\{}, which is not supported,", static_cast<char>(ch)));
    return {{ch, ch}};
  }
  CharSet class_item(bool in_negated) {
    if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == 'b') return at_ += 2, CharSet{{'\b', '\b'}};
    if (text_[at_] == '\\') return escape(true, in_negated);
    const char32_t ch = literal();
    return {{ch, ch}};
  }
  CharSet char_class() {
    CharSet out;
    const bool negated = take('^');
    bool first = true;
    while (more() && (text_[at_] != ']' || first)) {
      first = false;
      CharSet item = class_item(negated);
      const auto single = [](const CharSet& s) { return s.size() == 1 && s[0].first == s[0].last; };
      if (single(item) && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        const CharSet last = class_item(negated);
        if (!single(last) || last[0].first < item[0].first) refuse("a bad range in a class");
        item[0].last = last[0].first;
      }
      out.insert(out.end(), item.begin(), item.end());
    }
    if (!take(']')) refuse("a [ without its ]");
    if (!negated && !out.empty() && std::ranges::all_of(out, is_half)) refuse("a class of half surrogate pairs alone");
    return negated ? complement(out) : out;
  }

  std::string_view text_, where_;
  bool search_;
  size_t at_ = 0;
  Regex out_;
};

Regex Regex::parse(std::string_view pattern, std::string_view where) {
  return RegexParser(pattern, where, false).parse();
}
Regex Regex::parse_search(std::string_view pattern, std::string_view where) {
  return RegexParser(pattern, where, true).parse();
}

Regex Regex::any_text(int64_t min, int64_t max) {
  Regex out;
  out.nodes_.push_back({.kind = Node::Kind::set, .set = {{0, kCharMax}}});
  out.nodes_.push_back({.kind = Node::Kind::repeat, .children = {0}, .min = min, .max = max});
  return out;
}

bool Regex::is_plain() const {
  const auto is_printable = [](const CharRange& r) { return r.first >= ' ' && r.last <= '~'; };
  return std::ranges::all_of(nodes_, [&](const Node& n) { return std::ranges::all_of(n.set, is_printable); });
}

StateId Regex::compile(Builder& b, Spelling spelling, StateId next) const {
  return compile(b, spelling, static_cast<int32_t>(nodes_.size()) - 1, next);
}

StateId Regex::compile(Builder& b, Spelling spelling, int32_t id, StateId next) const {
  const Node& node = nodes_[static_cast<size_t>(id)];
  switch (node.kind) {
    case Node::Kind::set:
      return character(b, node.set, spelling, next);
    case Node::Kind::sequence:
      for (size_t i = node.children.size(); i-- > 0;) next = compile(b, spelling, node.children[i], next);
      return next;
    case Node::Kind::choice: {
      std::vector<StateId> ways;
      for (const int32_t child : node.children) ways.push_back(compile(b, spelling, child, next));
      return b.any_of(ways);
    }
    case Node::Kind::repeat:
      break;
  }
  if (node.min == 0 && node.max == 1) return b.any_of({compile(b, spelling, node.children[0], next), next});
  return b.repeat(b.rule(compile(b, spelling, node.children[0], b.done())), node.min, node.max, next);
}

bool Regex::matches(std::string_view text, int64_t& steps) const {
  const Offsets ends = ends_after(text, static_cast<int32_t>(nodes_.size()) - 1, {0}, steps);
  return steps > 0 && !ends.empty() && ends.back() == text.size();
}

// The offsets in the text that a node leads to from any of some others.
Regex::Offsets Regex::ends_after(std::string_view text, int32_t id, const Offsets& begins, int64_t& steps) const {
  const Node& node = nodes_[static_cast<size_t>(id)];
  Offsets out;
  if ((steps -= std::ssize(begins) + 1) <= 0) return out;
  switch (node.kind) {
    case Node::Kind::set:
      for (const size_t i : begins) {
        if (i >= text.size()) break;
        const sys::Utf8Step step = sys::utf8_step(text, i);
        const auto after = std::ranges::upper_bound(node.set, step.value, {}, &CharRange::first);
        if (after != node.set.begin() && step.value <= (after - 1)->last) out.push_back(i + step.length);
      }
      return out;
    case Node::Kind::sequence:
      out = begins;
      for (const int32_t child : node.children) {
        if (out.empty()) break;
        out = ends_after(text, child, out, steps);
      }
      return out;
    case Node::Kind::choice:
      for (const int32_t child : node.children) {
        const Offsets more = ends_after(text, child, begins, steps);
        out.insert(out.end(), more.begin(), more.end());
      }
      std::ranges::sort(out);
      out.erase(std::unique(out.begin(), out.end()), out.end());
      return out;
    case Node::Kind::repeat:
      return ends_after_repeat(text, node, begins, steps);
  }
  return out;
}

// Up to `min` the counts of iterations matter; beyond it an offset that was reached earlier can do all that it can do
// later, so each is followed once: a loop over a long text takes time in its length, not in its square.
Regex::Offsets Regex::ends_after_repeat(std::string_view text, const Node& node, Offsets at, int64_t& steps) const {
  int64_t i = 0;
  for (; i < node.min && !at.empty(); ++i) {
    Offsets next = ends_after(text, node.children[0], at, steps);
    if (next == at) i = node.min - 1;  // so do all further ones
    at = std::move(next);
  }
  std::unordered_set<size_t> seen(at.begin(), at.end());
  for (; (node.max < 0 || i < node.max) && !at.empty(); ++i) {
    at = ends_after(text, node.children[0], at, steps);
    std::erase_if(at, [&](size_t offset) { return !seen.insert(offset).second; });
  }
  Offsets out(seen.begin(), seen.end());
  std::ranges::sort(out);
  return out;
}

Regex::Lengths Regex::lengths() const {
  std::vector<Lengths> all(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const auto of = [&](int32_t child) { return all[static_cast<size_t>(child)]; };
    switch (node.kind) {
      case Node::Kind::set:
        all[i] = {1, 1};
        break;
      case Node::Kind::repeat:
        all[i] = {product(node.min, of(node.children[0]).min), product(node.max, of(node.children[0]).max)};
        break;
      case Node::Kind::sequence:
        for (const int32_t child : node.children)
          all[i] = {sum(all[i].min, of(child).min), sum(all[i].max, of(child).max)};
        break;
      case Node::Kind::choice:
        all[i] = of(node.children[0]);
        for (const int32_t child : node.children)
          all[i] = {std::min(all[i].min, of(child).min),
                    all[i].max < 0 || of(child).max < 0 ? kUnbounded : std::max(all[i].max, of(child).max)};
    }
  }
  return all.back();
}

Regex Regex::without(const CharSet& characters) const {
  Regex out = *this;
  std::vector<bool> some(nodes_.size());  // nodes that still have texts
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = out.nodes_[i];
    const auto has = [&](int32_t child) { return some[static_cast<size_t>(child)]; };
    switch (node.kind) {
      case Node::Kind::set:
        node.set = intersection(node.set, complement(characters));
        some[i] = !node.set.empty();
        break;
      case Node::Kind::repeat:
        some[i] = node.min == 0 || has(node.children[0]);
        break;
      case Node::Kind::sequence:
        some[i] = std::ranges::all_of(node.children, has);
        break;
      case Node::Kind::choice:
        some[i] = std::ranges::any_of(node.children, has);
    }
  }
  if (!some.back()) out.nodes_.clear();
  return out;
}

Regex Regex::with_length(int64_t min, int64_t max) const {
  Regex out;
  if (nodes_.size() != 2 || nodes_[0].kind != Node::Kind::set || nodes_[1].kind != Node::Kind::repeat) return out;
  out.nodes_ = nodes_;
  Node& repeat = out.nodes_[1];
  repeat.min = std::max(repeat.min, min);
  if (max >= 0) repeat.max = repeat.max < 0 ? max : std::min(repeat.max, max);
  return out;
}

}  // namespace braid::grammar
