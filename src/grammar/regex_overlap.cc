// An automaton reads a character or moves on without one; bounded repetitions are unrolled.
#include "grammar/regex_overlap.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace braid::grammar {
namespace {

// Of one automaton. Five have fewer than 2^62 tuples of states.
constexpr size_t kStatesMax = 4000, kEdgesMax = 4 * kStatesMax;
constexpr int64_t kFirstSteps = 32;   // enough where first or last characters differ
constexpr int64_t kAnswerSteps = 16;  // for the memory of an answer

}  // namespace

class Unrolled {
 public:
  static constexpr int32_t kEnd = 0, kNoSet = -1;

  // The expression outlives this. Backward it reads texts from their end.
  Unrolled(const Regex& regex, bool backward) : regex_(regex), backward_(backward) {
    set_of_node_.assign(regex.nodes_.size(), kNoSet);
    add(kNoSet, {});
    start_ = regex.empty() ? add(kNoSet, {}) : of(static_cast<int32_t>(regex.nodes_.size()) - 1, kEnd);
    set_of_node_ = {};
  }
  bool whole() const { return states_.size() < kStatesMax && edges_.size() < kEdgesMax; }
  int32_t start() const { return start_; }
  uint64_t size() const { return states_.size(); }
  // Whose characters a state reads before it moves on; kNoSet: it moves on without any.
  int32_t set_of(int32_t state) const { return states_[static_cast<size_t>(state)].set; }
  const CharSet& characters(int32_t set) const { return *sets_[static_cast<size_t>(set)]; }
  std::span<const int32_t> next(int32_t state) const {
    const State& s = states_[static_cast<size_t>(state)];
    return std::span(edges_).subspan(static_cast<size_t>(s.first), static_cast<size_t>(s.count));
  }

 private:
  struct State {
    int32_t set, first, count;  // of edges
  };

  int32_t add(int32_t set, std::span<const int32_t> next) {
    if (whole()) {
      states_.push_back({set, static_cast<int32_t>(edges_.size()), static_cast<int32_t>(next.size())});
      edges_.insert(edges_.end(), next.begin(), next.end());
    }
    return static_cast<int32_t>(states_.size()) - 1;
  }
  int32_t either(int32_t one, int32_t other) { return add(kNoSet, std::array{one, other}); }

  // A text of the node, then `next`.
  int32_t of(int32_t id, int32_t next) {
    const Regex::Node& node = regex_.nodes_[static_cast<size_t>(id)];
    switch (node.kind) {
      case Regex::Node::Kind::set: {
        int32_t& set = set_of_node_[static_cast<size_t>(id)];
        if (set == kNoSet) {
          set = static_cast<int32_t>(sets_.size());
          sets_.push_back(&node.set);
        }
        return add(set, std::array{next});
      }
      case Regex::Node::Kind::sequence:
        for (size_t i = 0; i < node.children.size(); ++i)
          next = of(node.children[backward_ ? i : node.children.size() - 1 - i], next);
        return next;
      case Regex::Node::Kind::choice: {
        std::vector<int32_t> ways;
        for (const int32_t child : node.children) ways.push_back(of(child, next));
        return add(kNoSet, ways);
      }
      case Regex::Node::Kind::repeat:
        return repeated(node, next);
    }
    return next;
  }
  int32_t repeated(const Regex::Node& node, int32_t next) {
    const int32_t body = node.children[0], after = next;
    if (node.max < 0) {
      next = either(after, after);
      const int32_t once = of(body, next);
      if (whole()) edges_[static_cast<size_t>(states_[static_cast<size_t>(next)].first)] = once;
    }
    for (int64_t i = node.min; i < node.max && whole(); ++i) {
      const int32_t once = of(body, next);
      if (once == next) break;  // it has no characters
      next = either(once, after);
    }
    for (int64_t i = 0; i < node.min && whole(); ++i) {
      const int32_t once = of(body, next);
      if (once == next) break;
      next = once;
    }
    return next;
  }

  const Regex& regex_;
  bool backward_;
  std::vector<State> states_;  // the first is the end
  std::vector<int32_t> edges_;
  std::vector<const CharSet*> sets_;
  std::vector<int32_t> set_of_node_;
  int32_t start_ = 0;
};

namespace {

class Search {
 public:
  using Tuple = std::array<int32_t, CommonTexts::kExpressionsMax>;

  Search(std::vector<const Unrolled*> all, int64_t& steps) : all_(std::move(all)), steps_(steps) {}

  std::optional<bool> run() {
    Tuple tuple{};
    for (size_t i = 0; i < all_.size(); ++i) tuple[i] = all_[i]->start();
    reach(tuple);
    while (!waiting_.empty() && steps_ > 0) {
      tuple = tuple_of(waiting_.back());
      waiting_.pop_back();
      size_t free = 0, ends = 0;
      while (free < all_.size() && (tuple[free] == Unrolled::kEnd || reads(free, tuple)))
        ends += tuple[free++] == Unrolled::kEnd;
      if (free < all_.size()) {  // the first that moves on without a character does so, each way
        for (const int32_t next : all_[free]->next(tuple[free])) {
          tuple[free] = next;
          reach(tuple);
        }
        continue;
      }
      if (ends == all_.size()) return true;
      if (ends > 0 || !have_common_character(tuple)) continue;
      for (size_t i = 0; i < all_.size(); ++i) tuple[i] = all_[i]->next(tuple[i])[0];
      reach(tuple);
    }
    if (steps_ <= 0) return std::nullopt;
    return false;
  }

 private:
  bool reads(size_t i, const Tuple& tuple) const { return all_[i]->set_of(tuple[i]) != Unrolled::kNoSet; }
  uint64_t number_of(const Tuple& tuple) const {
    uint64_t out = 0;
    for (size_t i = 0; i < all_.size(); ++i) out = out * all_[i]->size() + static_cast<uint64_t>(tuple[i]);
    return out;
  }
  Tuple tuple_of(uint64_t number) const {
    Tuple out{};
    for (size_t i = all_.size(); i-- > 0; number /= all_[i]->size())
      out[i] = static_cast<int32_t>(number % all_[i]->size());
    return out;
  }
  // Each way to a tuple counts, not only those that are new: a choice may have thousands.
  void reach(const Tuple& tuple) {
    if (--steps_ <= 0) return;
    const uint64_t number = number_of(tuple);
    if (seen_.insert(number).second) waiting_.push_back(number);
  }
  bool have_common_character(const Tuple& tuple) {
    Tuple sets{};  // fewer than states
    for (size_t i = 0; i < all_.size(); ++i) sets[i] = all_[i]->set_of(tuple[i]);
    const auto [at, is_new] = common_.try_emplace(number_of(sets));
    if (!is_new) return at->second;
    CharSet common = {{0, kCharMax}};
    for (size_t i = 0; i < all_.size(); ++i) {
      const CharSet& one = all_[i]->characters(sets[i]);
      steps_ -= std::ssize(one);
      common = intersection(common, one);
    }
    return at->second = !common.empty();
  }

  std::vector<const Unrolled*> all_;
  int64_t& steps_;
  std::unordered_set<uint64_t> seen_;
  std::vector<uint64_t> waiting_;
  std::unordered_map<uint64_t, bool> common_;  // by sets
};

}  // namespace

const Unrolled* CommonTexts::automaton(const Regex* regex, bool backward) {
  const auto [at, is_new] = automata_.try_emplace({regex, backward});
  if (is_new) {
    at->second = std::make_shared<const Unrolled>(*regex, backward);
    left_ -= static_cast<int64_t>(at->second->size());
  }
  return at->second->whole() ? at->second.get() : nullptr;
}

std::optional<bool> CommonTexts::search(const std::vector<const Regex*>& all, bool backward, int64_t most) {
  std::vector<const Unrolled*> automata;
  for (const Regex* regex : all) {
    if (left_ <= 0) return std::nullopt;
    automata.push_back(automaton(regex, backward));
    if (!automata.back()) return std::nullopt;
  }
  const int64_t given = std::min(most, left_);
  int64_t steps = given;
  const std::optional<bool> out = Search(std::move(automata), steps).run();
  left_ -= given - steps;
  return out;
}

std::optional<bool> CommonTexts::of(std::vector<const Regex*> all) {
  const std::set<const Regex*> known(all.begin(), all.end());
  if (known.size() > kExpressionsMax) return std::nullopt;
  if (known.size() < all.size()) all.assign(known.begin(), known.end());
  const auto [at, is_new] = answers_.try_emplace(known);
  if (!is_new) return at->second;
  left_ -= kAnswerSteps;
  for (const int64_t most : {kFirstSteps, each_ / 2}) {
    for (const bool backward : {false, true}) {
      if (!at->second) at->second = search(all, backward, most);
    }
  }
  return at->second;
}

}  // namespace braid::grammar
