// Factors and losses of balance, and capacity, against their definitions computed token by token; on ranks that divide
// the tokens, those of one rank.
#include "nn/balance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "comm/inproc.h"
#include "nn/context_parallel.h"
#include "nn/rank_views.h"

namespace braid::nn {
namespace {

constexpr int64_t kRouted = 6, kTaken = 2;
const std::vector<int64_t> kLens = {9, 4, 1, 12, 3, 17};
const std::vector<int64_t> kRows = {0, 14, 26, 46};  // {9, 4, 1}, {12}, {3, 17}

SeqMap sequences() {
  SeqMap map;
  for (const int64_t n : kLens) map.add(n);
  return map;
}
int64_t row_with(int64_t token) { return token < 14 ? 0 : token < 26 ? 1 : 2; }

// All tokens of a pass: choices that prefer the first experts, their weights, and normalised scores.
struct Tokens {
  SeqMap seqs = sequences();
  std::vector<int32_t> experts;
  std::vector<float> weights, scores;

  explicit Tokens(uint32_t seed = 1) {
    std::mt19937 random(seed);
    for (int64_t t = 0; t < seqs.tokens(); ++t) {
      const auto first = static_cast<int32_t>(random() % 12 % kRouted % 4);
      experts.insert(experts.end(), {first, first + 1 + static_cast<int32_t>(random() % 2)});
      for (int64_t j = 0; j < kTaken; ++j) weights.push_back(static_cast<float>(random() % 5) / 8);  // ties
      for (int64_t e = 0; e < kRouted; ++e) scores.push_back(static_cast<float>(random() % 1000) / 3000);
    }
  }
  // How often each expert was chosen by the tokens for which `in` holds, times E / (K T).
  template <class In>
  std::vector<double> loads(In&& in) const {
    std::vector<double> counts(kRouted);
    double all = 0;
    for (size_t slot = 0; slot < experts.size(); ++slot) {
      if (!in(static_cast<int64_t>(slot) / kTaken)) continue;
      counts[static_cast<size_t>(experts[slot])] += 1;
      ++all;
    }
    for (double& n : counts) n *= kRouted / all;
    return counts;
  }
  std::vector<double> of_sequence(int64_t token) const {
    const Seq& own = *std::find_if(seqs.seqs.begin(), seqs.seqs.end(),
                                   [&](const Seq& s) { return token >= s.start && token < s.start + s.len; });
    return loads([&](int64_t t) { return t >= own.start && t < own.start + own.len; });
  }
  std::vector<double> of_row(int64_t token) const {
    return loads([&](int64_t t) { return row_with(t) == row_with(token); });
  }
};

RouterWatch asking() {
  RouterWatch watch{.factors = {.sequence = 0.5f, .row = 0.25f, .batch = 2}};
  watch.rows = kRows;
  return watch;
}

// A pass of a rank, or of one that has all tokens.
struct Pass {
  Arena arena;
  Ctx ctx{.arena = arena};
  StateView state;
  std::optional<ContextShares> shares;
  Run run;

  Pass(const Tokens& all, RouterWatch& watch, comm::Group* ranks, TokenOrder order)
      : shares(shares_of(all, ranks, order)),
        run{.ctx = ctx, .seqs = shares ? shares->own : all.seqs, .state = state, .routers = &watch} {
    if (shares) run.context = &*shares;
    watch.layers[0].resize(kRouted, false);
  }
  static std::optional<ContextShares> shares_of(const Tokens& all, comm::Group* ranks, TokenOrder order) {
    if (!ranks) return std::nullopt;
    ContextShares shares;
    shares.ranks = ranks;
    divide_tokens(all.seqs, ranks->rank(), ranks->size(), order, shares);
    return shares;
  }
  // The tokens of its rows, among all.
  std::vector<int64_t> own() const {
    std::vector<int64_t> list(static_cast<size_t>(run.seqs.tokens()));
    for (size_t i = 0; i < run.seqs.seqs.size(); ++i) {
      const Seq& s = run.seqs.seqs[i];
      const int64_t first = shares ? shares->whole->seqs[shares->sequence[i]].start + s.pos0 : s.start;
      for (int64_t t = 0; t < s.len; ++t) list[static_cast<size_t>(s.start + t)] = first + t;
    }
    return list;
  }
  template <class Num>
  Tensor rows(const std::vector<Num>& of_all, int64_t width, DType dtype) {
    const Tensor x(arena, dtype, {run.seqs.tokens(), width});
    int64_t row = 0;
    for (const int64_t t : own()) std::copy_n(&of_all[static_cast<size_t>(t * width)], width, x.mut().as<Num>(row++));
    return x;
  }
  Tensor sums_of_scores(const Tokens& all) {
    const Tensor sums(arena, DType::f32, {std::ssize(run.seqs.seqs), kRouted});
    const std::vector<int64_t> tokens = own();
    for (size_t i = 0; i < run.seqs.seqs.size(); ++i) {
      const Seq& s = run.seqs.seqs[i];
      for (int64_t e = 0; e < kRouted; ++e) {
        double sum = 0;
        for (int64_t t = s.start; t < s.start + s.len; ++t)
          sum += static_cast<double>(all.scores[static_cast<size_t>(tokens[static_cast<size_t>(t)] * kRouted + e)]);
        sums.mut().as<float>(static_cast<int64_t>(i))[e] = static_cast<float>(sum);
      }
    }
    return sums;
  }
};

struct Seen {
  double sequence = 0, row = 0;
};

// Factors of every piece as its tokens define them; `batch`: what the batch is known to load.
Seen expect_balance(const Tokens& all, comm::Group* ranks, TokenOrder order, const std::vector<double>& batch) {
  RouterWatch watch = asking();
  watch.everyone = ranks;
  Pass pass(all, watch, ranks, order);
  const Tensor experts = pass.rows(all.experts, kTaken, DType::i32), scores = pass.sums_of_scores(all),
               factors(pass.arena, DType::f32, scores.shape());
  balance(pass.run, watch.layers[0], experts.view(), scores.view(), factors.mut());
  const std::vector<int64_t> tokens = pass.own();
  for (size_t i = 0; i < pass.run.seqs.seqs.size(); ++i) {
    const int64_t token = tokens[static_cast<size_t>(pass.run.seqs.seqs[i].start)];
    const auto sequence = all.of_sequence(token), row = all.of_row(token);
    for (size_t e = 0; e < kRouted; ++e)
      EXPECT_NEAR(factors.view().as<float>(static_cast<int64_t>(i))[e],
                  0.5 * sequence[e] + 0.25 * row[e] + 2 * batch[e], 1e-5);
  }
  return {watch.layers[0].sequence, watch.layers[0].row};
}

Seen expected(const Tokens& all) {
  Seen sum;
  for (int64_t t = 0; t < all.seqs.tokens(); ++t) {
    const auto sequence = all.of_sequence(t), row = all.of_row(t);
    for (size_t e = 0; e < kRouted; ++e) {
      const auto p = static_cast<double>(all.scores[static_cast<size_t>(t) * kRouted + e]);
      sum.sequence += sequence[e] * p;
      sum.row += row[e] * p;
    }
  }
  return sum;
}

TEST(Balance, FactorsAreTheLoadsOfSequenceRowAndBatch) {
  const Tokens all;
  const std::vector<double> batch = all.loads([](int64_t) { return true; });
  const Seen want = expected(all), got = expect_balance(all, nullptr, TokenOrder::zigzag, batch);
  EXPECT_NEAR(got.sequence, want.sequence, 1e-4);
  EXPECT_NEAR(got.row, want.row, 1e-4);
  for (const TokenOrder order : {TokenOrder::zigzag, TokenOrder::consecutive}) {
    std::vector<Seen> parts(3);
    comm::run_in_process(3, {}, [&](comm::Group& world) {
      parts[static_cast<size_t>(world.rank())] = expect_balance(all, &world, order, batch);
    });
    EXPECT_NEAR(parts[0].sequence + parts[1].sequence + parts[2].sequence, want.sequence, 1e-4);
    EXPECT_NEAR(parts[0].row + parts[1].row + parts[2].row, want.row, 1e-4);
  }
}

// Two ranks, two passes each: the counts are those of all ranks and of the passes so far, and a new step has none.
TEST(Balance, ABatchIsCountedAsFarAsItIsKnown) {
  const std::vector<Tokens> all = {Tokens(1), Tokens(2), Tokens(3), Tokens(4)};
  comm::run_in_process(2, {}, [&](comm::Group& world) {
    RouterWatch watch{.factors = {.batch = 1}};
    watch.rows = kRows;
    watch.everyone = &world;
    for (int step = 0; step < 2; ++step) {
      watch.clear();
      std::vector<double> known(kRouted);
      for (const size_t part : {0, 2}) {
        const Tokens& own = all[part + static_cast<size_t>(world.rank())];
        Pass pass(own, watch, nullptr, TokenOrder::zigzag);
        const Tensor experts = pass.rows(own.experts, kTaken, DType::i32), scores = pass.sums_of_scores(own),
                     factors(pass.arena, DType::f32, scores.shape());
        balance(pass.run, watch.layers[0], experts.view(), scores.view(), factors.mut());
        double slots = 0;
        for (const size_t rank : {0, 1}) {
          for (const int32_t e : all[part + rank].experts) known[static_cast<size_t>(e)] += 1;
        }
        for (const double n : known) slots += n;
        for (int64_t i = 0; i < factors.dim(0); ++i) {
          for (size_t e = 0; e < kRouted; ++e)
            EXPECT_NEAR(factors.view().as<float>(i)[e], kRouted * known[e] / slots, 1e-5);
        }
      }
    }
  });
}

// A slot is dropped if its expert is full by then: of the slots of its row, in order of weight or of tokens.
std::vector<int32_t> expected_within(const Tokens& all, double capacity, bool drop_last) {
  std::vector<int32_t> kept = all.experts;
  for (size_t slot = 0; slot < kept.size(); ++slot) {
    const int64_t row = row_with(static_cast<int64_t>(slot) / kTaken);
    double before = 0, slots = 0;
    for (size_t other = 0; other < kept.size(); ++other) {
      if (row_with(static_cast<int64_t>(other) / kTaken) != row) continue;
      ++slots;
      const float a = all.weights[other], b = all.weights[slot];
      if (all.experts[other] == all.experts[slot] && (drop_last ? other < slot : a > b || (a == b && other < slot)))
        ++before;
    }
    if (before >= std::ceil(capacity * slots / kRouted)) kept[slot] = -1;
  }
  return kept;
}

TEST(Balance, ExpertsTakeNoMoreThanTheirCapacity) {
  const Tokens all;
  for (const double capacity : {0.01, 0.5, 1.0, 1.25, 6.0}) {
    for (const bool drop_last : {false, true}) {
      const std::vector<int32_t> want = expected_within(all, capacity, drop_last);
      const auto dropped = std::count(want.begin(), want.end(), -1);
      EXPECT_EQ(dropped == 0, capacity == 6);
      std::vector<int32_t> got(want.size());
      const auto place = [&](comm::Group* ranks, TokenOrder order) {
        RouterWatch watch{.capacity = capacity, .drop_last = drop_last, .rows = kRows};
        Pass pass(all, watch, ranks, order);
        const Tensor experts = pass.rows(all.experts, kTaken, DType::i32),
                     weights = pass.rows(all.weights, kTaken, DType::f32),
                     kept = within_capacity(pass.run, watch.layers[0], experts, weights, kRouted);
        int64_t row = 0;
        for (const int64_t t : pass.own())
          std::copy_n(kept.view().as<int32_t>(row++), kTaken, &got[static_cast<size_t>(t * kTaken)]);
        return watch.layers[0].dropped;
      };
      EXPECT_EQ(place(nullptr, TokenOrder::zigzag), dropped);
      EXPECT_EQ(got, want) << capacity;
      for (const TokenOrder order : {TokenOrder::zigzag, TokenOrder::consecutive}) {
        got.assign(want.size(), -2);
        std::vector<int64_t> parts(3);
        comm::run_in_process(
            3, {}, [&](comm::Group& world) { parts[static_cast<size_t>(world.rank())] = place(&world, order); });
        EXPECT_EQ(parts[0] + parts[1] + parts[2], dropped);
        EXPECT_EQ(got, want) << capacity;
      }
    }
  }
}

}  // namespace
}  // namespace braid::nn
