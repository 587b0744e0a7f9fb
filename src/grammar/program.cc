#include "grammar/program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "grammar/token_trie.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

// States, edges and targets together; a schema of 10,000 values has some 100,000 states. This bounds a hostile program
// to some 15 MB with the costs of its states, and texts that are sorted into a tree to as much again for a moment.
constexpr size_t kProgramMax = 400'000;

// Which rules have the empty text: the least fixed point, by passes over all states until nothing changes.
std::vector<bool> nullable_rules(const Program& p) {
  std::vector<bool> state(p.states.size()), rule(p.rules.size());
  const auto empty = [&](const State& s) {
    const auto is = [&](StateId id) { return state[static_cast<size_t>(id)]; };
    switch (s.kind) {
      case State::Kind::bytes:
        return false;
      case State::Kind::split:
        return std::any_of(p.targets.begin() + s.a, p.targets.begin() + s.a + s.b, is);
      case State::Kind::call:
        return rule[static_cast<size_t>(s.a)] && is(s.b);
      case State::Kind::repeat: {
        const Repetition& r = p.repetitions[static_cast<size_t>(s.a)];
        return (r.min == 0 || rule[static_cast<size_t>(r.body)]) && is(r.next);
      }
      case State::Kind::done:
        return true;
    }
    return false;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < p.states.size(); ++i) {  // a state follows those that it leads to, but for loops
      if (state[i] || !empty(p.states[i])) continue;
      state[i] = changed = true;
    }
    for (size_t i = 0; i < p.rules.size(); ++i) rule[i] = state[static_cast<size_t>(p.rules[i])];
  }
  return rule;
}

}  // namespace

void Builder::too_large() const {
  fail(where_, {.what = "the constraint is too large",
                .expected = fmt::format("at most {} states, edges and targets", kProgramMax)});
}

StateId Builder::add(State state) {
  if (program_.states.size() + program_.edges.size() + program_.targets.size() >= kProgramMax) too_large();
  program_.states.push_back(state);
  return static_cast<StateId>(program_.states.size()) - 1;
}

StateId Builder::done() {
  if (done_ < 0) done_ = add({State::Kind::done});
  return done_;
}

StateId Builder::bytes(std::vector<ByteEdge> edges) {
  const auto first = static_cast<int32_t>(program_.edges.size());
  program_.edges.insert(program_.edges.end(), edges.begin(), edges.end());
  return add({State::Kind::bytes, first, static_cast<int32_t>(edges.size())});
}

StateId Builder::literal(std::string_view text, StateId next) {
  for (size_t i = text.size(); i-- > 0;)
    next = byte(static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i]), next);
  return next;
}

StateId Builder::tag(std::string_view text, StateId next) {
  const StateId spelled = literal(text, next);
  return any_of({byte(static_cast<uint8_t>(kTagMark), static_cast<uint8_t>(kTagMark), spelled), spelled});
}

StateId Builder::literals(const std::vector<std::string>& texts, StateId next) {
  if (texts.size() == 1) {
    if (2 * texts[0].size() > kProgramMax) too_large();  // a state and an edge for each byte
    return literal(texts[0], next);
  }
  struct Node {
    std::map<uint8_t, size_t> children{};
    bool ends = false;
  };
  std::vector<Node> nodes(1);
  for (const std::string& text : texts) {
    size_t at = 0;
    for (const char ch : text) {
      const auto [child, is_new] = nodes[at].children.try_emplace(static_cast<uint8_t>(ch), nodes.size());
      at = child->second;
      if (is_new) nodes.emplace_back();
      if (2 * nodes.size() > kProgramMax) too_large();
    }
    nodes[at].ends = true;
  }
  std::vector<StateId> states(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {  // children come after their parents
    std::vector<ByteEdge> edges;
    for (const auto& [byte, child] : nodes[i].children) edges.push_back({byte, byte, states[child]});
    if (edges.empty())
      states[i] = nodes[i].ends ? next : any_of({});
    else
      states[i] = nodes[i].ends ? any_of({bytes(std::move(edges)), next}) : bytes(std::move(edges));
  }
  return states[0];
}

StateId Builder::any_of(const std::vector<StateId>& states) {
  if (states.size() == 1) return states[0];
  const auto first = static_cast<int32_t>(program_.targets.size());
  program_.targets.insert(program_.targets.end(), states.begin(), states.end());
  return add({State::Kind::split, first, static_cast<int32_t>(states.size())});
}

StateId Builder::call(RuleId rule, StateId next) { return add({State::Kind::call, rule, next}); }

StateId Builder::repeat(RuleId body, int64_t min, int64_t max, StateId next) {
  constexpr int64_t kCountMax = 1 << 30;  // counts beyond it cannot be reached
  const bool unbounded = max < 0 || max > kCountMax;
  if (!unbounded && max < min) return any_of({});
  program_.repetitions.push_back({body, static_cast<int32_t>(std::clamp<int64_t>(min, 0, kCountMax)),
                                  unbounded ? kUnbounded : static_cast<int32_t>(max), next});
  return add({State::Kind::repeat, static_cast<int32_t>(program_.repetitions.size()) - 1});
}

StateId Builder::later() {
  program_.targets.push_back(-1);
  return add({State::Kind::split, static_cast<int32_t>(program_.targets.size()) - 1, 1});
}

void Builder::bind(StateId placeholder, StateId target) {
  program_.targets[static_cast<size_t>(program_.states[static_cast<size_t>(placeholder)].a)] = target;
}

RuleId Builder::declare() {
  program_.rules.push_back(-1);
  return static_cast<RuleId>(program_.rules.size()) - 1;
}

void Builder::define(RuleId rule, StateId start) { program_.rules[static_cast<size_t>(rule)] = start; }

RuleId Builder::rule(StateId start) {
  const RuleId id = declare();
  define(id, start);
  return id;
}

Program Builder::finish(RuleId start) {
  program_.start = start;
  for (const StateId rule : program_.rules) CHECK(rule >= 0, "a rule was declared and not defined");
  for (const StateId target : program_.targets) CHECK(target >= 0, "a state was announced and not bound");
  program_.nullable = nullable_rules(program_);
  for (Repetition& r : program_.repetitions) {
    if (program_.nullable[static_cast<size_t>(r.body)]) r.min = 0;  // empty ones count
  }
  return std::move(program_);
}

}  // namespace braid::grammar
