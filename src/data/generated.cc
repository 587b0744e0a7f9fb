#include "data/generated.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "data/shuffle.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::data {
namespace {

constexpr int64_t kStatesMax = int64_t{1} << 20;
constexpr int64_t kTableMax = int64_t{1} << 26;  // entries of a table of steps or rules

// The random numbers of one row, in order.
class Draws {
 public:
  Draws(uint64_t seed, int64_t row) : key_{.seed = mix(seed, static_cast<uint64_t>(row)), .stream = 1} {}
  double unit() {  // in [0, 1), 53 bits
    const auto r = philox(key_, next_++);
    return static_cast<double>(uint64_t{r[0]} << 21 ^ r[1] >> 11) * 0x1p-53;
  }
  int64_t below(int64_t n) { return std::min(static_cast<int64_t>(unit() * static_cast<double>(n)), n - 1); }
  // An index drawn from a cumulative distribution.
  int64_t from(std::span<const double> cumulative) {
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end() - 1, unit());
    return found - cumulative.begin();
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

// 1 : 1/2 : 1/3 : ..., normalised.
std::vector<double> harmonic(int64_t n) {
  std::vector<double> p(static_cast<size_t>(n));
  for (size_t i = 0; i < p.size(); ++i) p[i] = 1 / static_cast<double>(i + 1);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

std::vector<double> cumulative(std::vector<double> p) {
  std::partial_sum(p.begin(), p.end(), p.begin());
  return p;
}

double entropy(std::span<const double> p) {
  double nats = 0;
  for (const double x : p) nats -= x > 0 ? x * std::log(x) : 0;
  return nats;
}

int64_t in_range(const std::string& word, int64_t value, int64_t min, int64_t max, const std::string& hint = {}) {
  if (value < min || value > max) {
    fail("data." + word, {.what = "is out of range",
                          .got = std::to_string(value),
                          .expected = fmt::format("{} to {}", min, max),
                          .hint = hint});
  }
  return value;
}

int64_t long_enough(const std::string& unit, int64_t length, int64_t tokens) {
  if (length < tokens) {
    fail("length", {.what = fmt::format("a row is too short for {}", unit),
                    .got = std::to_string(length),
                    .expected = fmt::format("{} or more", tokens)});
  }
  return length;
}

// How many units of `tokens` tokens a row holds after token 0: at least one.
int64_t units_of(const std::string& unit, int64_t length, int64_t tokens) {
  return long_enough(unit, length, tokens) / tokens;
}

class Markov final : public Source {
 public:
  Markov(const GeneratorSpec& spec, const RowRules& rules, uint64_t seed)
      : length_(rules.length),
        states_(in_range("states", spec.states > 0 ? spec.states : std::min(rules.vocabulary, kStatesMax), 1,
                         std::min(rules.vocabulary, kStatesMax))),
        branch_(in_range("branch", spec.branch, 1, std::min(kTableMax / states_, int64_t{1024}))),
        seed_(seed),
        p_(harmonic(branch_)),
        cumulative_(cumulative(p_)),
        next_(static_cast<size_t>(states_ * branch_)) {
    for (int64_t i = 0; i < states_ * branch_; ++i) {
      const uint64_t step = mix(seed_, static_cast<uint64_t>(i % branch_));
      next_[static_cast<size_t>(i)] = static_cast<int32_t>(shuffled(i / branch_, states_, step));
    }
  }

  int64_t rows() const override { return 0; }
  void row(int64_t index, RowWriter& out) const override {
    Draws draws(seed_, index);
    std::vector<int32_t>& ids = out.scratch().ids;
    ids.resize(static_cast<size_t>(length_ + 1));
    auto state = static_cast<int32_t>(draws.below(states_));
    for (int32_t& id : ids) {
      id = state;
      state = next_[static_cast<size_t>(state * branch_ + draws.from(cumulative_))];
    }
    out.add(ids, 0, length_);
  }

  // Steps to the same state add up, so the entropy is computed state by state.
  std::optional<double> entropy_floor() const override {
    double sum = 0;
    std::vector<double> merged;
    for (int64_t s = 0; s < states_; ++s) {
      const auto to = std::span(next_).subspan(static_cast<size_t>(s * branch_), static_cast<size_t>(branch_));
      merged = p_;
      for (size_t j = 1; j < to.size(); ++j) {
        const auto first = static_cast<size_t>(std::find(to.begin(), to.end(), to[j]) - to.begin());
        if (first < j) merged[first] += std::exchange(merged[j], 0);
      }
      sum += entropy(merged);
    }
    return sum / static_cast<double>(states_);
  }

 private:
  int64_t length_, states_, branch_;
  uint64_t seed_;
  std::vector<double> p_, cumulative_;
  std::vector<int32_t> next_;  // [states, branch]
};

class Pcfg final : public Source {
 public:
  Pcfg(const GeneratorSpec& spec, const RowRules& rules, uint64_t seed)
      : symbols_(in_range("states", spec.states > 0 ? spec.states : std::min<int64_t>(rules.vocabulary - 1, 32), 1,
                          std::min(rules.vocabulary - 1, int64_t{4096}))),
        rules_(in_range("rules", spec.rules, 1, symbols_)),
        depth_(in_range("depth", spec.depth, 1, 16)),
        sentence_(int64_t{1} << depth_),
        sentences_(units_of("a sentence", rules.length, sentence_)),
        seed_(seed),
        p_(harmonic(rules_)),
        cumulative_(cumulative(p_)) {}

  int64_t rows() const override { return 0; }
  void row(int64_t index, RowWriter& out) const override {
    Draws draws(seed_, index);
    auto& [ids, symbols, wider] = out.scratch();
    ids.assign(1, 0);
    for (int64_t n = 0; n < sentences_; ++n) {
      symbols.assign(1, draws.below(symbols_));
      for (int64_t level = 0; level < depth_; ++level) {
        wider.clear();
        for (const int64_t symbol : symbols) {
          const int64_t rule = symbol * rules_ + draws.from(cumulative_);
          const int64_t pair = shuffled(rule, symbols_ * symbols_, mix(seed_, static_cast<uint64_t>(level)));
          wider.push_back(pair / symbols_);
          wider.push_back(pair % symbols_);
        }
        symbols.swap(wider);
      }
      for (const int64_t symbol : symbols) ids.push_back(static_cast<int32_t>(1 + symbol));
    }
    out.add(ids, 0, std::ssize(ids) - 1);
  }

  // A sentence has one derivation: its first symbol, and one rule for each of the 2^depth - 1 symbols that become two.
  std::optional<double> entropy_floor() const override {
    const auto tokens = static_cast<double>(sentence_);
    return (std::log(static_cast<double>(symbols_)) + (tokens - 1) * entropy(p_)) / tokens;
  }

 private:
  int64_t symbols_, rules_, depth_, sentence_, sentences_;
  uint64_t seed_;
  std::vector<double> p_, cumulative_;
};

class Modular final : public Source {
 public:
  Modular(const GeneratorSpec& spec, const RowRules& rules, uint64_t seed)
      : modulus_(in_range("modulus", spec.modulus, 2, rules.vocabulary - kFirst,
                          fmt::format("a vocabulary of {} or more", spec.modulus + kFirst))),
        equations_(units_of("an equation", rules.length, kTokens)),
        seed_(seed) {}

  int64_t rows() const override { return 0; }
  void row(int64_t index, RowWriter& out) const override {
    Draws draws(seed_, index);
    std::vector<int32_t>& ids = out.scratch().ids;
    ids.assign(1, 0);
    for (int64_t n = 0; n < equations_; ++n) {
      const int64_t a = draws.below(modulus_), op = draws.below(kOps), b = draws.below(modulus_);
      const int64_t c = op == 0 ? a + b : op == 1 ? a - b + modulus_ : a * b;
      for (const int64_t id : {kFirst + a, 1 + op, kFirst + b, 1 + kOps, kFirst + c % modulus_}) {
        ids.push_back(static_cast<int32_t>(id));
      }
    }
    out.add(ids, 0, std::ssize(ids) - 1);
  }
  std::optional<double> entropy_floor() const override {
    return (2 * std::log(static_cast<double>(modulus_)) + std::log(static_cast<double>(kOps))) / kTokens;
  }

 private:
  static constexpr int64_t kOps = 3, kTokens = 5, kFirst = 2 + kOps;  // 0, the operators, =, the numbers
  int64_t modulus_, equations_;
  uint64_t seed_;
};

class Recall final : public Source {
 public:
  Recall(const GeneratorSpec& spec, const RowRules& rules, uint64_t seed)
      : keys_(in_range("states", spec.states > 0 ? spec.states : std::min((rules.vocabulary - 1) / 2, kStatesMax), 1,
                       std::min((rules.vocabulary - 1) / 2, kStatesMax))),
        pairs_(in_range("pairs", spec.pairs, 1,
                        std::min(keys_, long_enough("a pair and a question", rules.length, 4) / 2 - 1),
                        "a larger length, or more data.states")),
        queries_(rules.length / 2 - pairs_),
        seed_(seed) {}

  int64_t rows() const override { return 0; }
  void row(int64_t index, RowWriter& out) const override {
    Draws draws(seed_, index);
    std::vector<int32_t>& ids = out.scratch().ids;
    std::vector<int64_t>& keys = out.scratch().symbols;
    keys.resize(static_cast<size_t>(keys_));
    std::iota(keys.begin(), keys.end(), int64_t{0});
    ids.assign(1, 0);
    for (int64_t n = 0; n < pairs_; ++n) {
      std::swap(keys[static_cast<size_t>(n)], keys[static_cast<size_t>(n + draws.below(keys_ - n))]);
      ids.push_back(static_cast<int32_t>(1 + keys[static_cast<size_t>(n)]));
      ids.push_back(static_cast<int32_t>(1 + keys_ + draws.below(keys_)));
    }
    for (int64_t n = 0; n < queries_; ++n) {
      const auto pair = static_cast<size_t>(1 + 2 * draws.below(pairs_));
      ids.insert(ids.end(), {ids[pair], ids[pair + 1]});
    }
    out.add(ids, 0, std::ssize(ids) - 1);
  }

  std::optional<double> entropy_floor() const override {
    double nats = static_cast<double>(queries_) * std::log(static_cast<double>(pairs_));
    for (int64_t n = 0; n < pairs_; ++n) {
      nats += std::log(static_cast<double>(keys_ - n)) + std::log(static_cast<double>(keys_));
    }
    return nats / static_cast<double>(2 * (pairs_ + queries_));
  }

 private:
  int64_t keys_, pairs_, queries_;
  uint64_t seed_;
};

class Hops final : public Source {
 public:
  Hops(const GeneratorSpec& spec, const RowRules& rules, uint64_t seed)
      : symbols_(in_range("states", spec.states > 0 ? spec.states : 10, 2,
                          std::min(long_enough("two symbols and a question", rules.length, 4) - 2, int64_t{1024}),
                          "a larger length")),
        hops_(in_range("hops", spec.hops, 1, (rules.vocabulary - 1 - symbols_ - symbols_ * symbols_) / symbols_,
                       "a larger vocabulary, or fewer states")),
        queries_((rules.length - symbols_) / 2),
        seed_(seed) {}

  int64_t rows() const override { return 0; }
  void row(int64_t index, RowWriter& out) const override {
    Draws draws(seed_, index);
    auto& [ids, next, order] = out.scratch();
    permute(draws, next);
    permute(draws, order);
    ids.assign(1, 0);
    for (const int64_t symbol : order)
      ids.push_back(static_cast<int32_t>(1 + symbol * symbols_ + next[static_cast<size_t>(symbol)]));
    for (int64_t n = 0; n < queries_; ++n) {
      const int64_t hops = draws.below(hops_), start = draws.below(symbols_);
      int64_t at = start;
      for (int64_t i = 0; i <= hops; ++i) at = next[static_cast<size_t>(at)];
      ids.push_back(static_cast<int32_t>(1 + (symbols_ + hops) * symbols_ + start));
      ids.push_back(static_cast<int32_t>(1 + (symbols_ + hops_) * symbols_ + at));
    }
    out.add(ids, 0, std::ssize(ids) - 1);
  }

  // Of the permutation, the order of its pairs and the questions; an answer follows from what is before it.
  std::optional<double> entropy_floor() const override {
    const double ask = std::log(static_cast<double>(hops_ * symbols_));
    const double nats = 2 * std::lgamma(static_cast<double>(symbols_) + 1) + static_cast<double>(queries_) * ask;
    return nats / static_cast<double>(symbols_ + 2 * queries_);
  }

 private:
  void permute(Draws& draws, std::vector<int64_t>& values) const {
    values.resize(static_cast<size_t>(symbols_));
    std::iota(values.begin(), values.end(), int64_t{0});
    for (int64_t n = 0; n < symbols_; ++n)
      std::swap(values[static_cast<size_t>(n)], values[static_cast<size_t>(n + draws.below(symbols_ - n))]);
  }

  int64_t symbols_, hops_, queries_;
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Source> make_generated(const std::string& kind, const GeneratorSpec& spec, const RowRules& rules,
                                       uint64_t seed) {
  if (kind == "markov") return std::make_unique<Markov>(spec, rules, seed);
  if (kind == "pcfg") return std::make_unique<Pcfg>(spec, rules, seed);
  if (kind == "modular") return std::make_unique<Modular>(spec, rules, seed);
  if (kind == "recall") return std::make_unique<Recall>(spec, rules, seed);
  CHECK(kind == "hops", "{}", kind);
  return std::make_unique<Hops>(spec, rules, seed);
}

}  // namespace braid::data
