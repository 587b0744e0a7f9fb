#include "grammar/json_text.h"

#include <map>

#include "grammar/characters.h"
#include "grammar/numbers.h"
#include "sys/utf8.h"

namespace braid::grammar {
namespace {

constexpr int kIndentMax = 32;

RuleId gap_rule(Builder& b) {
  StateId spaces = b.done();
  for (int i = 0; i < kIndentMax; ++i) spaces = b.any_of({b.byte(' ', ' ', spaces), b.done()});
  return b.rule(b.any_of({b.done(), b.byte('\n', '\n', spaces)}));
}

}  // namespace

JsonText::JsonText(Builder& b)
    : b_(b),
      gap_(gap_rule(b)),
      character_(b.rule(json_character(b, b.done()))),
      values_(kAnyDepth + 1, -1),
      objects_(values_) {}

StateId JsonText::open(char bracket, StateId next) {
  return b_.literal(std::string_view(&bracket, 1), b_.call(gap_, next));
}
StateId JsonText::close(char bracket, StateId next) {
  return b_.call(gap_, b_.literal(std::string_view(&bracket, 1), next));
}
StateId JsonText::empty(char left, char right, StateId next) { return b_.literal(std::string{left, right}, next); }
StateId JsonText::comma(StateId next) {
  return b_.literal(",", b_.any_of({b_.byte(' ', ' ', next), b_.call(gap_, next)}));
}
StateId JsonText::colon(StateId next) { return b_.literal(":", b_.any_of({b_.byte(' ', ' ', next), next})); }

StateId JsonText::string(int64_t min, int64_t max, StateId next) {
  return b_.literal("\"", b_.repeat(character_, min, max, b_.literal("\"", next)));
}

// A trie of the names: a text that leaves it is another one, and so is one that ends where no name does.
StateId JsonText::other_key(const std::vector<std::string>& names, StateId next) {
  struct Node {
    std::map<char32_t, size_t> children{};
    bool ends = false;
  };
  std::vector<Node> nodes(1);
  for (const std::string& name : names) {
    size_t at = 0;
    for (size_t i = 0; i < name.size();) {
      const sys::Utf8Step step = sys::utf8_step(name, i);
      i += step.length;
      const size_t child = nodes[at].children.try_emplace(step.value, nodes.size()).first->second;
      if (child == nodes.size()) nodes.emplace_back();
      at = child;
    }
    nodes[at].ends = true;
  }
  const CharSet plain = complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  const StateId quote = b_.literal("\"", next);
  const RuleId one = b_.rule(character(b_, plain, Spelling::plain, b_.done()));
  const StateId rest = b_.repeat(one, 0, kKeyMax, quote);
  std::vector<StateId> states(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    CharSet known{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    std::vector<StateId> ways;
    for (const auto& [ch, child] : nodes[i].children) {
      known.push_back({ch, ch});
      if (!intersection({{ch, ch}}, plain).empty())
        ways.push_back(character(b_, {{ch, ch}}, Spelling::plain, states[child]));
    }
    ways.push_back(character(b_, complement(known), Spelling::plain, rest));
    if (!nodes[i].ends) ways.push_back(quote);
    states[i] = b_.any_of(ways);
  }
  return b_.literal("\"", states[0]);
}

RuleId JsonText::object_at(int depth) {
  RuleId& rule = objects_[static_cast<size_t>(depth)];
  if (rule >= 0) return rule;
  const auto member = [&](StateId next) { return string(0, kKeyMax, colon(b_.call(value_at(depth - 1), next))); };
  return rule = b_.rule(list('{', '}', 0, kUnbounded, member, b_.done()));
}

RuleId JsonText::value_at(int depth) {
  RuleId& rule = values_[static_cast<size_t>(depth)];
  if (rule >= 0) return rule;
  const StateId end = b_.done();
  std::vector<StateId> ways{string(0, kUnbounded, end), number(b_, {}, "number", end), word("true", end),
                            word("false", end), word("null", end)};
  if (depth > 0) {
    const auto element = [&](StateId next) { return b_.call(value_at(depth - 1), next); };
    ways.push_back(b_.call(object_at(depth), end));
    ways.push_back(list('[', ']', 0, kUnbounded, element, end));
  }
  return rule = b_.rule(b_.any_of(ways));
}

}  // namespace braid::grammar
