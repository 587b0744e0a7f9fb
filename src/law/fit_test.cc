// Known laws are recovered, published rows give the published fits, and columns that identify nothing are refused.
#include "law/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "law/fit_file.h"
#include "law/law_fixture.h"
#include "law/plan.h"
#include "support/error_of.h"
#include "sys/parallel.h"

namespace braid::law {
namespace {

FitOptions few(int64_t resamples) { return {.resamples = resamples, .threads = sys::default_threads()}; }

bool holds(const Range& r, double value) { return r.low <= value && value <= r.high; }

TEST(Fit, GradientIsTheSlope) {
  const Sample sample = sample_of(runs_of(kKnown, 0.01, 1), {});
  for (const double delta : {1e-3, 1.0}) {
    const Law at{.alpha = 0.3, .beta = 0.4, .log_a = 6, .log_b = 8, .log_e = 0.5};
    Vector gradient{};
    huber_sum(sample, delta, at, &gradient);
    double Law::*const fields[] = {&Law::alpha, &Law::beta, &Law::log_a, &Law::log_b, &Law::log_e};
    for (size_t i = 0; i < kVariables; ++i) {
      const double h = 1e-6;
      Law up = at, down = at;
      up.*fields[i] += h;
      down.*fields[i] -= h;
      const double slope = (huber_sum(sample, delta, up) - huber_sum(sample, delta, down)) / (2 * h);
      EXPECT_NEAR(gradient[i], slope, 1e-5 * std::fabs(slope) + 1e-9) << i;
    }
  }
}

TEST(Fit, ExactRowsGiveTheLaw) {
  const Fit f = fit(runs_of(kKnown, 0, 0), "runs", few(0));
  EXPECT_NEAR(f.law.alpha, kKnown.alpha, 1e-5);
  EXPECT_NEAR(f.law.beta, kKnown.beta, 1e-5);
  EXPECT_NEAR(f.law.irreducible(), kKnown.irreducible(), 1e-5);
  EXPECT_LT(f.left_out.rms, 1e-5);
  EXPECT_EQ(f.left_out.sizes, 9);
  EXPECT_NEAR(f.flops_factor, 6, 1e-12);
}

// Percentiles over 27 runs hold the truth a little less often than 95%: of 24 seeds in 88% of all intervals.
TEST(Fit, KnownLawIsInsideItsIntervals) {
  double (*const values[])(const Law&) = {
      [](const Law& l) { return l.alpha; },           [](const Law& l) { return l.beta; },
      [](const Law& l) { return l.log_a; },           [](const Law& l) { return l.log_b; },
      [](const Law& l) { return l.irreducible(); },   [](const Law& l) { return l.size_exponent(); },
      [](const Law& l) { return l.loss(1e10, 1e12); }};
  constexpr int kSeeds = 6;
  int inside = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Fit f = fit(runs_of(kKnown, 0.004, seed), "runs", few(100));
    ASSERT_EQ(f.draws.size(), 100u);
    for (const auto& value : values) inside += holds(interval_of(f.draws, value), value(kKnown)) ? 1 : 0;
    const Range alpha = interval_of(f.draws, values[0]);
    EXPECT_LT(alpha.high - alpha.low, 0.08);  // and they say something
    // About the noise of the rows, sqrt(1.25) 0.4%.
    EXPECT_GT(f.left_out.rms, 0.002);
    EXPECT_LT(f.left_out.rms, 0.009);
  }
  EXPECT_GE(inside, kSeeds * 7 * 8 / 10);
}

// Rows of a run share its noise: resampled row by row, the intervals would be far too narrow.
TEST(Fit, RunsAreResampledWhole) {
  Runs runs = runs_of(kKnown, 0.004, 1);
  const auto width = [](const Runs& r) {
    const Range alpha = interval_of(fit(r, "runs", few(100)).draws, [](const Law& l) { return l.alpha; });
    return alpha.high - alpha.low;
  };
  const double whole = width(runs);
  runs.count = 0;
  for (Row& r : runs.rows) r.run = runs.count++;
  EXPECT_GT(whole, 1.3 * width(runs));
}

TEST(Fit, RowsInAnyOrderGiveTheSameBits) {
  const Runs runs = runs_of(kKnown, 0.01, 5);
  std::vector<std::string> lines;
  for (const Row& r : runs.rows) lines.push_back(fmt::format("run{},{},{},{}\n", r.run, r.params, r.tokens, r.loss));
  const auto fitted = [&] {
    std::string text = "run,params,tokens,loss\n";
    for (const std::string& line : lines) text += line;
    return to_json(fit(read_runs(text, "runs"), "runs", few(4)), true).dump();
  };
  const std::string first = fitted();
  std::reverse(lines.begin(), lines.end());
  std::rotate(lines.begin(), lines.begin() + 17, lines.end());
  EXPECT_EQ(fitted(), first);
}

TEST(Fit, ThreadsChangeNoBit) {
  const Runs runs = runs_of(kKnown, 0.01, 6);
  EXPECT_EQ(to_json(fit(runs, "runs", {.resamples = 4, .threads = 1}), true).dump(),
            to_json(fit(runs, "runs", {.resamples = 4, .threads = 3}), true).dump());
}

// The published optimum and its objective, sum of Huber losses with delta 1e-4 over these rows:
// parameters_delta-4/approach_3_parameters_grid_search_0_hot.json of the repository that published the rows.
TEST(Fit, PublishedObjective) {
  BRAID_NEEDS_GEMSTONES();
  const Law published{.alpha = 0.2989180518,
                      .beta = 0.6928331414,
                      .log_a = 5.4574988414,
                      .log_b = 14.9719740349,
                      .log_e = 0.7663168139};
  const Sample sample = sample_of(gemstones("gemstones-hot.csv"), {});
  EXPECT_NEAR(huber_sum(sample, 1e-4, published), 0.0002076018, 5e-11);
  const ParametricFit ours = fit_parametric(sample, 1e-4, sys::default_threads());
  EXPECT_LE(ours.objective, 0.0002076018);
  EXPECT_NEAR(ours.law.alpha, published.alpha, 0.01);
  EXPECT_NEAR(ours.law.beta, published.beta, 0.05);
  EXPECT_NEAR(ours.law.log_e, published.log_e, 0.005);
}

// parameters_delta-3/approach_3_parameters_grid_search_0_hot.json: with the wider delta the optimum is smooth, and both
// searches reach it.
TEST(Fit, PublishedFit) {
  BRAID_NEEDS_GEMSTONES();
  const ParametricFit ours =
      fit_parametric(sample_of(gemstones("gemstones-hot.csv"), {}), 1e-3, sys::default_threads());
  EXPECT_NEAR(ours.objective, 0.0019816129, 5e-9);
  EXPECT_NEAR(ours.law.alpha, 0.2928686863, 1e-3);
  EXPECT_NEAR(ours.law.beta, 0.712872206, 2e-3);
  EXPECT_NEAR(ours.law.log_a, 5.3613398367, 0.02);
  EXPECT_NEAR(ours.law.log_b, 15.415994531, 0.05);
  EXPECT_NEAR(ours.law.log_e, 0.7622636901, 1e-3);
}

std::string refusal(const Runs& runs) {
  return support::error_of([&] { fit(runs, "runs.csv", few(0)); });
}

TEST(Fit, ColumnsThatIdentifyNothingAreRefused) {
  const Runs runs = runs_of(kKnown, 0.01, 1);
  Runs one = runs, two = runs, tied = runs, rising = runs;
  for (Row& r : one.rows) r.tokens = 1e9 * (1 + 1e-4 * static_cast<double>(r.run));  // whole batches differ a little
  EXPECT_EQ(refusal(one),
            "[runs.csv] tokens do not vary, which identifies no exponent of them; got 1 distinct; expected at least 3");
  std::erase_if(two.rows, [](const Row& r) { return r.params > 3e7; });
  EXPECT_EQ(
      refusal(two),
      "[runs.csv] too few values of params to identify an exponent and a coefficient; got 2 distinct; expected at "
      "least 3");
  for (Row& r : tied.rows) r.tokens = 20 * r.params;
  EXPECT_NE(refusal(tied).find("[runs.csv] tokens are a power of params in all rows"), std::string::npos);
  for (Row& r : rising.rows) r.loss = 2 + 1e-3 * std::log(r.params) + 100 * std::pow(r.tokens, -0.3);
  EXPECT_NE(refusal(rising).find("[runs.csv] the loss does not fall with params"), std::string::npos)
      << refusal(rising);
}

TEST(Fit, FileKeepsWhatAPlanNeeds) {
  const Fit f = fit(runs_of(kKnown, 0.01, 2), "runs", few(8));
  const Fit back = fit_from_json(io::Json::parse(to_json(f, true).dump(), "fit.json"));
  const Plan a = plan(f, 1e21), b = plan(back, 1e21);
  EXPECT_EQ(a.best.params, b.best.params);
  EXPECT_EQ(a.loss_interval.high, b.loss_interval.high);
  EXPECT_EQ(a.hull_params.low, b.hull_params.low);
  EXPECT_EQ(a.extrapolation, b.extrapolation);
  const auto refused = [](const char* text) {
    return support::error_of([&] { fit_from_json(io::Json::parse(text, "fit.json")); });
  };
  EXPECT_NE(refused("{}").find("format"), std::string::npos);
  EXPECT_NE(refused(R"({"format":"other"})").find("is not a fit of a scaling law"), std::string::npos);
}

// Runs of 16 shapes by a law of width and depth, whose parameters are 12 w^2 d and an embedding.
Runs shaped_runs(const ShapeLaw& law, double noise) {
  Runs runs{.has_shapes = true};
  for (const double width : {256.0, 512.0, 1024.0, 2048.0}) {
    for (const double depth : {3.0, 8.0, 20.0, 50.0}) {
      for (int checkpoint = 0; checkpoint < 5; ++checkpoint) {
        Row row{.params = 12 * width * width * depth + 32768 * width,
                .tokens = 2e9 * std::pow(3.0, checkpoint),
                .width = width,
                .depth = depth,
                .run = runs.count};
        row.flops = 6 * row.params * row.tokens;
        const auto own = static_cast<double>(
            normal4({.seed = 9, .stream = 3}, static_cast<uint64_t>(16 * runs.count + checkpoint))[0]);
        row.loss = law.loss(width, depth, row.params, row.tokens) * std::exp(noise * own);
        runs.rows.push_back(row);
      }
      ++runs.count;
    }
  }
  return runs;
}

const ShapeLaw kShaped{.exponent = {0.4, 0.5, 0.45, 0.47}, .log_factor = {2.2, -0.3, 7.5, 10}, .log_e = 0.45};

TEST(ShapeFit, ExactRowsGiveTheLawsLosses) {
  const Fit f = fit(shaped_runs(kShaped, 0), "runs", few(0));
  ASSERT_TRUE(f.shapes);
  EXPECT_LT(f.shapes->rms, 1e-4);
  EXPECT_GT(f.rms, 20 * f.shapes->rms);  // parameters and tokens alone cannot say it
  // A shape between those of the runs, and one twice as wide as all.
  for (const auto& [width, depth] : {std::pair(700.0, 12.0), {4096.0, 24.0}}) {
    const double params = 12 * width * width * depth + 32768 * width,
                 expected = kShaped.loss(width, depth, params, 1e11);
    EXPECT_NEAR(f.shapes->law.loss(width, depth, params, 1e11), expected, 2e-3 * expected) << width;
  }
  EXPECT_NEAR(f.shapes->law.exponent[3], 0.47, 0.01);
}

TEST(ShapeFit, IsKeptInTheFile) {
  const Fit f = fit(shaped_runs(kShaped, 0.002), "runs", few(6));
  ASSERT_TRUE(f.shapes);
  EXPECT_EQ(f.shape_draws.size(), 6u);
  const Fit back = fit_from_json(io::Json::parse(to_json(f, true).dump(), "fit.json"));
  ASSERT_TRUE(back.shapes);
  EXPECT_EQ(back.shapes->law.loss(512, 8, 3e7, 1e10), f.shapes->law.loss(512, 8, 3e7, 1e10));
  EXPECT_EQ(back.shape_draws.at(5).log_e, f.shape_draws.at(5).log_e);
}

TEST(ShapeFit, NeedsSeveralWidthsAndDepths) {
  Runs runs = shaped_runs(kShaped, 0);
  EXPECT_TRUE(identifies_shapes(runs));
  for (Row& r : runs.rows) r.depth = 12;
  EXPECT_FALSE(identifies_shapes(runs));
  for (Row& r : runs.rows) r.depth = r.width / 64;  // of one ratio
  EXPECT_FALSE(identifies_shapes(runs));
  EXPECT_FALSE(fit(runs, "runs", few(0)).shapes);
  runs.has_shapes = false;
  EXPECT_FALSE(identifies_shapes(runs));
}

TEST(Plan, IsTheCheapestWayToItsLoss) {
  Fit f{.flops = {.low = 1e18, .high = 1e20}};
  f.flops_factor = 7;
  f.law = kKnown;
  const Plan p = plan(f, 1e21);
  EXPECT_NEAR(7 * p.best.params * p.best.tokens, 1e21, 1e10);
  EXPECT_NEAR(p.extrapolation, 10, 1e-9);
  for (const double ratio : {0.98, 1.02}) EXPECT_GT(kKnown.loss(ratio * p.best.params, p.best.tokens / ratio), p.loss);
  for (const Deviation& d : p.deviations) {
    if (d.ratio == 1) {
      EXPECT_NEAR(*d.overspend, 1, 1e-9);
    } else if (d.overspend) {
      EXPECT_GT(*d.overspend, 1);
      EXPECT_NEAR(kKnown.loss(d.shape.params, *d.overspend * d.shape.tokens), p.loss, 1e-9);
    }
  }
  EXPECT_FALSE(tokens_to_reach(kKnown, 1e6, p.loss));  // too small a model at any length
}

}  // namespace
}  // namespace braid::law
