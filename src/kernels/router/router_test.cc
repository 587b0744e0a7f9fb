// Choices must be the reference's exactly (random scores differ by more than FP32 rounding); weights to 2e-5 of their
// root mean square: a softmax over 512 experts adds up 512 roundings. Their gradients, large for the 22 chosen alone,
// to 1e-4.
#include "kernels/router/router.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/router/router_ref.h"

namespace braid {
namespace {

struct Case {
  int64_t tokens, experts, k, n_group, topk_group;
};
constexpr Case kCases[] = {{1, 16, 6, 1, 1}, {150, 16, 6, 4, 2}, {40, 128, 6, 1, 1}, {33, 512, 22, 1, 1},
                           {17, 8, 8, 1, 1}, {20, 256, 8, 8, 4}, {5, 3, 1, 1, 1}};

TEST(Router, EveryRowAgreesWithTheReference) {
  for (const Case& c : kCases) {
    for (const RouterKind kind : {RouterKind::sigmoid, RouterKind::softmax}) {
      for (const bool normalise : {true, false}) {
        TestTensor logits(DType::f32, {c.tokens, c.experts}, 1, 2), bias(DType::f32, {c.experts}, 2, 0.3),
            experts(DType::i32, {c.tokens, c.k}, 3, 0), weights(DType::f32, {c.tokens, c.k}, 4);
        RouterFwd op{.logits = logits.view(),
                     .bias = bias.view(),
                     .experts = experts.mut(),
                     .weights = weights.mut(),
                     .kind = kind,
                     .n_group = c.n_group,
                     .topk_group = c.topk_group,
                     .normalise = normalise,
                     .scale = 2.5f};
        sweep(op, 2e-5);
        op.bias = {};
        sweep(op, 2e-5);
      }
    }
  }
}

// Values that can be checked by hand. Every row of the table, by name.
struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};
Routed route(const char* row, const std::vector<float>& logits, const std::vector<float>& bias, int64_t k,
             RouterFwd options = {}) {
  Arena arena;
  Ctx ctx{.arena = arena};
  ctx.forced_rows = {{"router_fwd", row}};
  const auto count = static_cast<int64_t>(logits.size());
  Routed out{std::vector<int32_t>(static_cast<size_t>(k), -1), std::vector<float>(static_cast<size_t>(k), NAN)};
  options.logits = view_of(logits.data(), {1, count});
  if (!bias.empty()) options.bias = view_of(bias.data(), {count});
  options.experts = mut_view_of(out.experts.data(), {1, k});
  options.weights = mut_view_of(out.weights.data(), {1, k});
  run(ctx, options);
  return out;
}
constexpr const char* kRows[] = {"cpu", "ref"};

TEST(Router, BiasSelectsButIsNotWeighed) {
  for (const char* row : kRows) {
    // s = {0.5, 0.731, 0.881}; the bias lifts expert 0 to the first place.
    const Routed r = route(row, {0, 1, 2}, {1, 0, 0}, 2);
    EXPECT_EQ(r.experts, (std::vector<int32_t>{0, 2})) << row;
    EXPECT_NEAR(r.weights[0], 0.5 / (0.5 + 0.880797), 1e-6) << row;
    EXPECT_NEAR(r.weights[1], 0.880797 / (0.5 + 0.880797), 1e-6) << row;
    const Routed raw = route(row, {0, 1, 2}, {1, 0, 0}, 2, {.normalise = false, .scale = 3});
    EXPECT_NEAR(raw.weights[0], 1.5, 1e-6) << row;
  }
}

TEST(Router, ReplayedExpertsGetTheirOwnWeights) {
  const std::vector<int32_t> given = {1, 0};
  for (const char* row : kRows) {
    const Routed r = route(row, {0, 1, 2}, {}, 2, {.forced = view_of(given.data(), {1, 2})});
    EXPECT_EQ(r.experts, given) << row;
    EXPECT_NEAR(r.weights[0], 0.731059 / (0.731059 + 0.5), 1e-6) << row;
  }
}

TEST(Router, BiasStaysFp32) {
  // 1.0005 and 1 are equal in BF16, and the lower index would win.
  for (const char* row : kRows) EXPECT_EQ(route(row, {0, 0}, {1, 1.0005f}, 1).experts[0], 1) << row;
}

TEST(Router, EqualScoresGoToTheLowestIndex) {
  for (const char* row : kRows) {
    EXPECT_EQ(route(row, {0, 1, 0, 1, 1, 0}, {}, 4).experts, (std::vector<int32_t>{1, 3, 4, 0})) << row;
    // Two groups with equal scores: the first is kept.
    EXPECT_EQ(route(row, {1, 0, 0, 1}, {}, 2, {.n_group = 2}).experts, (std::vector<int32_t>{0, 1})) << row;
  }
}

TEST(Router, GroupsScoreByTheirTwoBestAndTheRestAreNeverChosen) {
  for (const char* row : kRows) {
    // The best expert (5) is in a group with a poor second; biases make every score of the kept group negative,
    // so a dropped expert at 0 instead of -inf would be chosen.
    const std::vector<float> logits{0, 0, 0, -9, -9, 1}, bias(6, -2.0f);
    const Routed r = route(row, logits, bias, 3, {.n_group = 2});
    EXPECT_EQ(r.experts, (std::vector<int32_t>{0, 1, 2})) << row;
  }
}

TEST(Router, SoftmaxIsOverAllExperts) {
  for (const char* row : kRows) {
    const RouterFwd softmax{.kind = RouterKind::softmax, .normalise = false};
    const Routed r = route(row, {0, 0, 0, std::log(3.0f)}, {}, 2, softmax);
    EXPECT_EQ(r.experts, (std::vector<int32_t>{3, 0})) << row;
    EXPECT_NEAR(r.weights[0], 0.5, 1e-6) << row;
    EXPECT_NEAR(r.weights[1], 1.0 / 6, 1e-6) << row;
    EXPECT_NEAR(route(row, {88, 89, 1000}, {}, 1, softmax).weights[0], 1, 1e-6) << row;
  }
}

TEST(Router, AnyLogitsGiveIndicesThatExist) {
  for (const char* row : kRows) {
    for (const float v : {NAN, INFINITY, -INFINITY, 0.0f}) {
      const std::vector<float> logits{v, 1, v, v, v, -1, v, v};
      for (const RouterKind kind : {RouterKind::sigmoid, RouterKind::softmax}) {
        const auto experts = route(row, logits, {}, 6, {.kind = kind, .n_group = 4, .topk_group = 2}).experts;
        EXPECT_EQ(std::set<int32_t>(experts.begin(), experts.end()).size(), 6u) << row;
        for (const int32_t e : experts) EXPECT_TRUE(e >= 0 && e < 8) << row << " chose " << e;
      }
    }
  }
}

// Wherever it is: the experts that were chosen without it must not pass for an answer.
TEST(Router, NanIsSeen) {
  for (const char* row : kRows) {
    EXPECT_TRUE(std::isnan(route(row, {1, 2, NAN, 0}, {}, 2, {}).weights[0])) << row;
    EXPECT_TRUE(std::isnan(route(row, {1, 2, 3, 0}, {0, NAN, 0, 0}, 2, {}).weights[1])) << row;
    EXPECT_FALSE(std::isnan(route(row, {1, 2, 3, 0}, {0, -INFINITY, 0, 0}, 2, {}).weights[0])) << row;
  }
}

// A batch of sequences, routed, with space for the results of stats and backward.
struct Batch {
  SeqMap seqs;
  TestTensor logits, experts, weights, dweights, factors, scores, z, load, dlogits;
  RouterStats stats;
  RouterBwd bwd;
  Batch(const std::vector<int64_t>& lens, int64_t count, int64_t k, RouterKind kind, bool normalise)
      : seqs(map_of(lens)),
        logits(DType::f32, {seqs.tokens(), count}, 1, 2),
        experts(DType::i32, {seqs.tokens(), k}, 2, 0),
        weights(DType::f32, {seqs.tokens(), k}, 3),
        dweights(DType::f32, {seqs.tokens(), k}, 4),
        factors(DType::f32, {std::ssize(lens), count}, 8, 0.3, 0.3),
        scores(DType::f32, {std::ssize(lens), count}, 5),
        z(DType::f32, {std::ssize(lens)}, 9),
        load(DType::i32, {count}, 6, 0, 3),
        dlogits(DType::f32, {seqs.tokens(), count}, 7) {
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, RouterFwd{.logits = logits.view(), .experts = experts.mut(), .weights = weights.mut(), .kind = kind});
    stats = {.logits = logits.view(),
             .experts = experts.view(),
             .scores = scores.mut(),
             .z = z.mut(),
             .load = load.mut(),
             .kind = kind,
             .seqs = &seqs};
    bwd = {.logits = logits.view(),
           .experts = experts.view(),
           .dweights = dweights.view(),
           .factors = factors.view(),
           .dlogits = dlogits.mut(),
           .kind = kind,
           .normalise = normalise,
           .scale = 2.5f,
           .z = 0.2f,
           .seqs = &seqs};
  }
  static SeqMap map_of(const std::vector<int64_t>& lens) {
    SeqMap map;
    for (const int64_t len : lens) map.add(len);
    return map;
  }
};

TEST(Router, StatsAndBackwardAgreeWithTheReference) {
  for (const RouterKind kind : {RouterKind::sigmoid, RouterKind::softmax}) {
    for (const int64_t k : {1, 2, 3, 4, 5, 6, 7, 8}) {
      Batch b({3, 40, 0, 1}, 8 + 5 * k, k, kind, k % 2 == 0);
      sweep(b.stats, 2e-5);
      sweep(b.bwd, 2e-5);
      b.stats.seqs = b.bwd.seqs = nullptr;
      b.stats.scores = b.scores.mut().slice(0, 0, 1);
      b.stats.z = b.z.mut().slice(0, 0, 1);
      b.bwd.factors = b.factors.view().slice(0, 1, 1);
      sweep(b.stats, 2e-5);
      sweep(b.bwd, 2e-5);
    }
    Batch b({20, 300}, 512, 22, kind, true);
    sweep(b.stats, 2e-5);
    sweep(b.bwd, 1e-4);
    b.bwd.z = 0;
    b.bwd.factors = {};
    sweep(b.bwd, 1e-4);
  }
}

TEST(Router, BackwardIsTheDerivative) {
  using Complex = std::complex<double>;
  for (const bool normalise : {true, false}) {
    for (const RouterKind kind : {RouterKind::sigmoid, RouterKind::softmax}) {
      const int64_t count = 5, k = 2;
      Batch b({3, 1}, count, k, kind, normalise);
      const bool softmax = kind == RouterKind::softmax;
      const auto gradient = complex_step(to_doubles(b.logits.view()), [&](const std::vector<Complex>& p) {
        Complex loss = 0;
        for (size_t s = 0; s < b.seqs.seqs.size(); ++s) {
          const Seq& seq = b.seqs.seqs[s];
          std::vector<std::vector<Complex>> logits;
          for (int64_t t = seq.start; t < seq.start + seq.len; ++t) {
            logits.emplace_back(p.begin() + t * count, p.begin() + (t + 1) * count);
            std::vector<size_t> experts(static_cast<size_t>(k));
            for (int64_t j = 0; j < k; ++j)
              experts[static_cast<size_t>(j)] = static_cast<size_t>(b.experts.view().as<int32_t>(t)[j]);
            std::vector<Complex> weights(experts.size());
            router_weights_ref({.normalise = normalise, .scale = 2.5}, router_scores_ref(logits.back(), softmax),
                               experts, weights);
            for (int64_t j = 0; j < k; ++j)
              loss += element(b.dweights.view(), t * k + j) * weights[static_cast<size_t>(j)];
          }
          const auto factors = to_doubles(b.factors.view().slice(0, static_cast<int64_t>(s), 1));
          const auto losses = router_losses_ref(logits, factors, softmax);
          loss += losses.balance + static_cast<double>(b.bwd.z) * losses.z;
        }
        return loss;
      });
      Arena arena;
      Ctx ctx{.arena = arena};
      run(ctx, b.bwd);
      for (int64_t i = 0; i < b.dlogits.view().count(); ++i)
        EXPECT_NEAR(element(b.dlogits.view(), i), gradient[static_cast<size_t>(i)], 1e-5) << i;
    }
  }
}

TEST(Router, ACutBetweenSequencesChangesNoBits) {
  Batch b({7, 300, 2}, 24, 3, RouterKind::sigmoid, true);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, b.stats);
  run(ctx, b.bwd);
  Batch parts({7, 300, 2}, 24, 3, RouterKind::sigmoid, true);
  for (const int64_t s : {0, 1, 2}) {
    const Seq& seq = b.seqs.seqs[static_cast<size_t>(s)];
    const SeqMap alone = SeqMap::one(seq.len);
    RouterStats stats = parts.stats;
    stats.seqs = &alone;
    stats.logits = stats.logits.slice(0, seq.start, seq.len);
    stats.experts = stats.experts.slice(0, seq.start, seq.len);
    stats.scores = stats.scores.slice(0, s, 1);
    stats.z = stats.z.slice(0, s, 1);
    run(ctx, stats);
    RouterBwd bwd = parts.bwd;
    bwd.seqs = &alone;
    bwd.factors = bwd.factors.slice(0, s, 1);
    for (View* v : {&bwd.logits, &bwd.experts, &bwd.dweights}) *v = v->slice(0, seq.start, seq.len);
    bwd.dlogits = bwd.dlogits.slice(0, seq.start, seq.len);
    run(ctx, bwd);
  }
  EXPECT_EQ(b.scores.bytes, parts.scores.bytes);
  EXPECT_EQ(b.z.bytes, parts.z.bytes);
  EXPECT_EQ(b.load.bytes, parts.load.bytes);
  EXPECT_EQ(b.dlogits.bytes, parts.dlogits.bytes);
}

// A sequence cut in two, each part with the factors of both: the statistics add up, gradients and loads are the same.
TEST(Router, PiecesWithTheFactorsOfTheWholeAddUp) {
  for (const RouterKind kind : {RouterKind::sigmoid, RouterKind::softmax}) {
    Batch b({90, 30}, 24, 3, kind, true), cut({40, 50, 30}, 24, 3, kind, true);
    for (const int64_t piece : {0, 1, 2})
      store(cut.factors.mut().slice(0, piece, 1), to_doubles(b.factors.view().slice(0, piece / 2, 1)));
    Arena arena;
    Ctx ctx{.arena = arena};
    for (Batch* x : {&b, &cut}) {
      run(ctx, x->stats);
      run(ctx, x->bwd);
    }
    for (int64_t e = 0; e < 24; ++e) {
      const auto of = [&](Batch& x, int64_t s) { return element(x.scores.view(), 24 * s + e); };
      EXPECT_NEAR(of(cut, 0) + of(cut, 1), of(b, 0), 1e-5 * of(b, 0));
      EXPECT_EQ(of(cut, 2), of(b, 1));
    }
    EXPECT_NEAR(element(cut.z.view(), 0) + element(cut.z.view(), 1), element(b.z.view(), 0), 1e-3);
    EXPECT_EQ(b.dlogits.bytes, cut.dlogits.bytes);
    EXPECT_EQ(b.load.bytes, cut.load.bytes);
  }
}

TEST(Router, StatisticsOfABalancedBatch) {
  // Two tokens, two experts, each chosen once, equal logits: p is 1/2 everywhere, z = 2 (ln 2)^2.
  const std::vector<float> logits(4, 0);
  const std::vector<int32_t> experts{1, 0};
  std::vector<float> scores(2), z(1);
  std::vector<int32_t> load{5, 0};
  for (const RouterKind kind : {RouterKind::sigmoid, RouterKind::softmax}) {
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, RouterStats{.logits = view_of(logits.data(), {2, 2}),
                         .experts = view_of(experts.data(), {2, 1}),
                         .scores = mut_view_of(scores.data(), {1, 2}),
                         .z = mut_view_of(z.data(), {1}),
                         .load = mut_view_of(load.data(), {2}),
                         .kind = kind});
    EXPECT_NEAR(scores[0], 1, 1e-6);
    EXPECT_NEAR(scores[1], 1, 1e-6);
    EXPECT_NEAR(z[0], 2 * std::log(2.0) * std::log(2.0), 1e-6);
  }
  EXPECT_EQ(load, (std::vector<int32_t>{7, 2}));
}

TEST(Router, BiasGoesAgainstTheLoad) {
  const std::vector<int32_t> load{9, 3, 0, 4};
  std::vector<float> bias{0, 1, 2, 3};
  update_router_bias(view_of(load.data(), {4}), 0.25f, mut_view_of(bias.data(), {4}));
  EXPECT_EQ(bias, (std::vector<float>{-0.25f, 1.25f, 2.25f, 3}));
}

// Logits of which the first experts are liked most, and their margins.
struct Margins {
  static constexpr int64_t kTokens = 3000, kCount = 12;
  TestTensor logits{DType::f32, {kTokens, kCount}, 1, 1};
  std::vector<float> bias = std::vector<float>(kCount);
  std::vector<int32_t> bins = std::vector<int32_t>(kCount * kMarginBins);
  Margins() {
    for (int64_t i = 0; i < logits.view().count(); ++i)
      logits.mut().as<float>()[i] += 1 - 0.2f * static_cast<float>(i % kCount);
  }
  RouterMargins op(int64_t first, int64_t n, int64_t k, RouterKind kind) {
    return {.logits = logits.view().slice(0, first, n),
            .bias = view_of(bias.data(), {kCount}),
            .bins = mut_view_of(bins.data(), {kCount, kMarginBins}),
            .top_k = k,
            .kind = kind};
  }
  // The busiest expert's load over the mean.
  double balance(int64_t k, RouterKind kind) {
    Arena arena;
    Ctx ctx{.arena = arena};
    TestTensor experts(DType::i32, {kTokens, k}, 2, 0), weights(DType::f32, {kTokens, k}, 3);
    run(ctx, RouterFwd{.logits = logits.view(),
                       .bias = view_of(bias.data(), {kCount}),
                       .experts = experts.mut(),
                       .weights = weights.mut(),
                       .kind = kind});
    std::vector<double> load(kCount);
    for (const double e : to_doubles(experts.view())) load[static_cast<size_t>(e)] += 1;
    return *std::max_element(load.begin(), load.end()) * kCount / static_cast<double>(kTokens * k);
  }
};

// Margins by sorting, in double, over all bins at once.
TEST(Router, MarginsAreCountedInTheirBins) {
  for (const int64_t k : {1, 3, 11, 12}) {
    Margins m;
    for (size_t e = 0; e < m.bias.size(); ++e) m.bias[e] = 0.01f * static_cast<float>(e % 5);
    std::vector<int32_t> wanted(m.bins.size());
    for (int64_t t = 0; t < Margins::kTokens && k < Margins::kCount; ++t) {
      auto selection = router_scores_ref(to_doubles(m.logits.view().slice(0, t, 1)), false);
      for (size_t e = 0; e < selection.size(); ++e) selection[e] += static_cast<double>(m.bias[e]);
      const double threshold = selection[descending(selection)[static_cast<size_t>(k)]];
      for (size_t e = 0; e < selection.size(); ++e) {
        const double margin = static_cast<double>(static_cast<float>(selection[e] - threshold));
        int64_t bin = 0;
        while (bin + 1 < kMarginBins && margin > (static_cast<double>(bin) - 511) / 2048) ++bin;
        ++wanted[e * kMarginBins + static_cast<size_t>(bin)];
      }
    }
    for (const int threads : {1, 3}) {
      Arena arena;
      Ctx ctx{.arena = arena, .threads = threads};
      std::fill(m.bins.begin(), m.bins.end(), 0);
      count_router_margins(ctx, m.op(0, 1000, k, RouterKind::sigmoid));
      count_router_margins(ctx, m.op(1000, 2000, k, RouterKind::sigmoid));
      EXPECT_EQ(m.bins, wanted) << k;
    }
  }
}

// Steps of the descent lead to equal loads, and from there nowhere.
TEST(Router, QuantilesBalanceTheLoad) {
  for (const RouterKind kind : {RouterKind::sigmoid, RouterKind::softmax}) {
    for (const int64_t k : {1, 3, 12}) {
      Margins m;
      const double before = m.balance(k, kind);
      for (int step = 0; step < 24; ++step) {
        Arena arena;
        Ctx ctx{.arena = arena};
        std::fill(m.bins.begin(), m.bins.end(), 0);
        count_router_margins(ctx, m.op(0, Margins::kTokens, k, kind));
        balance_router_bias(view_of(m.bins.data(), {Margins::kCount, kMarginBins}), k, 1,
                            mut_view_of(m.bias.data(), {Margins::kCount}));
      }
      if (k == Margins::kCount) {
        EXPECT_EQ(m.bias, std::vector<float>(Margins::kCount));
        continue;
      }
      EXPECT_GT(before, 1.2) << k;
      EXPECT_LT(m.balance(k, kind), 1.03) << k;
      EXPECT_NEAR(std::accumulate(m.bias.begin(), m.bias.end(), 0.0), 0, 1e-5);
    }
  }
}

TEST(Router, ABiasMovesByItsShareOfTheQuantile) {
  // Of 4 tokens expert 0 has all margins in one bin above 0.1, expert 1 below -0.1: two of four exceed the middle.
  constexpr double kWidth = 2 * kMarginMost / kMarginBins;
  std::vector<int32_t> bins(2 * kMarginBins);
  bins[800] = 4, bins[static_cast<size_t>(kMarginBins) + 100] = 4;
  std::vector<float> bias{1, 2};
  balance_router_bias(view_of(bins.data(), {2, kMarginBins}), 1, 0.5f, mut_view_of(bias.data(), {2}));
  const double down = (800.5 * kWidth - kMarginMost) / 2, up = (100.5 * kWidth - kMarginMost) / 2;
  EXPECT_NEAR(bias[1] - bias[0], 1 + down - up, 1e-6);
  EXPECT_NEAR(bias[0] + bias[1], 0, 1e-6);
}

TEST(RouterDeathTest, WrongGroupsAreABug) {
  EXPECT_DEATH(route("cpu", {0, 1, 2, 3, 4}, {}, 1, {.n_group = 2}), "5 in 2 groups");
  EXPECT_DEATH(route("ref", {0, 1}, {}, 3), "K = 3 of E = 2");
}

}  // namespace
}  // namespace braid
