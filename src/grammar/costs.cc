// Knuth's generalisation of Dijkstra's algorithm ("A generalization of Dijkstra's algorithm", Information Processing
// Letters 6, 1977): states become final in the order of their costs; a call becomes known once both the rule and what
// follows it are.
#include "grammar/costs.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace braid::grammar {
namespace {

struct Step {
  StateId from, to;
};

// From state to state by one token each, along bytes that have no alternative.
std::vector<Step> literal_tokens(const Program& p, const TokenTrie& trie) {
  std::vector<Step> out;
  const auto only = [&](StateId id) -> const ByteEdge* {
    const State& s = p.states[static_cast<size_t>(id)];
    if (s.kind != State::Kind::bytes || s.b != 1) return nullptr;
    const ByteEdge& edge = p.edges[static_cast<size_t>(s.a)];
    return edge.first == edge.last ? &edge : nullptr;
  };
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  for (StateId from = 0; from < std::ssize(p.states); ++from) {
    StateId at = from;
    size_t node = 0, end = nodes.size();
    while (const ByteEdge* edge = only(at)) {
      while (node < end && nodes[node].byte != edge->first) node = static_cast<size_t>(nodes[node].skip);
      if (node >= end) break;
      at = edge->next;
      if (nodes[node].count > 0) out.push_back({from, at});
      end = static_cast<size_t>(nodes[node].skip);
      ++node;
    }
  }
  return out;
}

// The least cost of every state and rule, where a call costs combine(rule, next).
class Search {
 public:
  using Combine = int64_t (*)(int64_t rule, int64_t next);
  Search(const Program& p, const std::vector<Step>& tokens, int64_t byte, Combine combine)
      : p_(p), byte_(byte), combine_(combine), users_(p.states.size()), callers_(p.rules.size()) {
    states.assign(p.states.size(), kNever);
    rules.assign(p.rules.size(), kNever);
    is_final_.resize(p.states.size());
    index(tokens);
  }
  std::vector<int64_t> states, rules;

  void run() {
    for (size_t i = 0; i < p_.states.size(); ++i) {
      if (p_.states[i].kind == State::Kind::done) improve(static_cast<StateId>(i), 0);
    }
    while (!queue_.empty()) {
      const StateId id = queue_.top().second;
      queue_.pop();
      if (std::exchange(is_final_[at(id)], char{1})) continue;
      for (const auto& [user, cost] : users_[at(id)]) follow(user, id, cost);
      for (const RuleId rule : starts_[at(id)]) {
        rules[at(rule)] = states[at(id)];
        for (const StateId caller : callers_[at(rule)]) call(caller);
      }
    }
  }

 private:
  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  struct User {
    StateId state;
    int64_t cost;
  };
  void index(const std::vector<Step>& tokens) {
    starts_.resize(p_.states.size());
    for (size_t rule = 0; rule < p_.rules.size(); ++rule)
      starts_[at(p_.rules[rule])].push_back(static_cast<RuleId>(rule));
    for (StateId id = 0; id < std::ssize(p_.states); ++id) {
      const State& s = p_.states[at(id)];
      if (s.kind == State::Kind::bytes) {
        for (int32_t i = s.a; i < s.a + s.b; ++i) users_[at(p_.edges[at(i)].next)].push_back({id, byte_});
      } else if (s.kind == State::Kind::split) {
        for (int32_t i = s.a; i < s.a + s.b; ++i) users_[at(p_.targets[at(i)])].push_back({id, 0});
      } else if (s.kind == State::Kind::call) {
        users_[at(s.b)].push_back({id, 0});
        callers_[at(s.a)].push_back(id);
      } else if (s.kind == State::Kind::repeat) {
        const Repetition& r = p_.repetitions[at(s.a)];
        users_[at(r.next)].push_back({id, 0});
        callers_[at(r.body)].push_back(id);
      }
    }
    for (const Step& step : tokens) users_[at(step.to)].push_back({step.from, byte_});
  }
  void improve(StateId id, int64_t cost) {
    cost = std::min(cost, kNever);
    if (cost >= states[at(id)]) return;
    states[at(id)] = cost;
    queue_.push({cost, id});
  }
  void follow(StateId user, StateId next, int64_t cost) {
    const State::Kind kind = p_.states[at(user)].kind;
    if (kind == State::Kind::call || kind == State::Kind::repeat)
      call(user);
    else
      improve(user, states[at(next)] + cost);
  }
  void call(StateId id) {
    const State& s = p_.states[at(id)];
    const bool repeats = s.kind == State::Kind::repeat;
    const Repetition r = repeats ? p_.repetitions[at(s.a)] : Repetition{.body = s.a, .min = 1, .next = s.b};
    if (!is_final_[at(r.next)] || (r.min > 0 && rules[at(r.body)] >= kNever)) return;
    int64_t cost = states[at(r.next)];
    if (r.min > 0) cost = combine_(rules[at(r.body)], cost);
    // The others of a repetition cost what the first did; for the depth they add nothing.
    const int64_t each = cost - states[at(r.next)];
    if (byte_ > 0 && r.min > 1) cost += std::min(kNever, each) * (std::min<int64_t>(r.min, kNever / (each + 1)) - 1);
    improve(id, cost);
  }

  const Program& p_;
  int64_t byte_;
  Combine combine_;
  std::vector<std::vector<User>> users_;       // by state: what leads to it
  std::vector<std::vector<StateId>> callers_;  // by rule
  std::vector<std::vector<RuleId>> starts_;    // by state: the rules that begin there
  std::vector<char> is_final_;
  std::priority_queue<std::pair<int64_t, StateId>, std::vector<std::pair<int64_t, StateId>>, std::greater<>> queue_;
};

}  // namespace

Costs costs_of(const Program& program, const TokenTrie& trie) {
  Search tokens(program, literal_tokens(program, trie), 1, [](int64_t rule, int64_t next) { return rule + next; });
  tokens.run();
  Search depth(program, {}, 0, [](int64_t rule, int64_t next) { return std::max(rule + 1, next); });
  depth.run();
  return {std::move(tokens.states), std::move(tokens.rules), std::move(depth.states), std::move(depth.rules)};
}

}  // namespace braid::grammar
