// Each expression as an automaton that reads a character or moves on without one, its bounded repetitions unrolled;
// then a search over tuples of their states, which read the same characters together.
#include "grammar/regex_overlap.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace braid::grammar {
namespace {

constexpr size_t kStatesMax = 4000;  // of one expression

}  // namespace

class Unrolled {
 public:
  struct State {
    const CharSet* set = nullptr;  // one of these characters, then next[0]; null: any of `next`
    std::vector<int32_t> next{};
  };
  static constexpr int32_t kEnd = 0;

  // The expression outlives this.
  explicit Unrolled(const Regex& regex) : regex_(regex) {
    states_.emplace_back();
    start_ = regex.empty() ? add({}) : of(static_cast<int32_t>(regex.nodes_.size()) - 1, kEnd);
  }
  bool whole() const { return states_.size() < kStatesMax; }
  int32_t start() const { return start_; }
  const State& state(int32_t id) const { return states_[static_cast<size_t>(id)]; }

 private:
  int32_t add(State state) {
    if (whole()) states_.push_back(std::move(state));
    return static_cast<int32_t>(states_.size()) - 1;
  }
  // A text of the node, then `next`.
  int32_t of(int32_t id, int32_t next) {
    const Regex::Node& node = regex_.nodes_[static_cast<size_t>(id)];
    switch (node.kind) {
      case Regex::Node::Kind::set:
        return add({.set = &node.set, .next = {next}});
      case Regex::Node::Kind::sequence:
        for (size_t i = node.children.size(); i-- > 0;) next = of(node.children[i], next);
        return next;
      case Regex::Node::Kind::choice: {
        State ways;
        for (const int32_t child : node.children) ways.next.push_back(of(child, next));
        return add(std::move(ways));
      }
      case Regex::Node::Kind::repeat:
        break;
    }
    const int32_t body = node.children[0];
    if (node.max < 0) {
      const int32_t loop = add({.next = {next}});
      const int32_t once = of(body, loop);
      states_[static_cast<size_t>(loop)].next.push_back(once);
      next = loop;
    }
    for (int64_t i = node.min; i < node.max && whole(); ++i) next = add({.next = {of(body, next), next}});
    for (int64_t i = 0; i < node.min && whole(); ++i) next = of(body, next);
    return next;
  }

  const Regex& regex_;
  std::vector<State> states_;  // the first is the end
  int32_t start_ = 0;
};

std::optional<bool> have_common_text(std::span<const Regex> all, int64_t& steps) {
  std::vector<Unrolled> automata;
  for (const Regex& regex : all) {
    automata.emplace_back(regex);
    if (!automata.back().whole()) return std::nullopt;
  }
  using Tuple = std::vector<int32_t>;
  Tuple first;
  for (const Unrolled& automaton : automata) first.push_back(automaton.start());
  std::set<Tuple> seen = {first};
  std::vector<Tuple> waiting = {first};
  const auto reach = [&](Tuple tuple) {
    if (seen.insert(tuple).second) waiting.push_back(std::move(tuple));
  };
  while (!waiting.empty()) {
    const Tuple tuple = std::move(waiting.back());
    waiting.pop_back();
    if (--steps <= 0) return std::nullopt;
    CharSet common = {{0, kCharMax}};
    size_t ends = 0, i = 0;
    for (; i < tuple.size(); ++i) {
      const Unrolled::State& state = automata[i].state(tuple[i]);
      if (tuple[i] != Unrolled::kEnd && !state.set) break;
      if (tuple[i] == Unrolled::kEnd) {
        ++ends;
        continue;
      }
      steps -= std::ssize(*state.set);
      common = intersection(common, *state.set);
    }
    if (i < tuple.size()) {  // the first that moves without a character does so, each way
      for (const int32_t next : automata[i].state(tuple[i]).next) {
        Tuple moved = tuple;
        moved[i] = next;
        reach(std::move(moved));
      }
      continue;
    }
    if (ends == tuple.size()) return true;
    if (ends > 0 || common.empty()) continue;
    Tuple moved;
    for (size_t k = 0; k < tuple.size(); ++k) moved.push_back(automata[k].state(tuple[k]).next[0]);
    reach(std::move(moved));
  }
  return false;
}

}  // namespace braid::grammar
