// The choice of thresholds against machines that are made up, so that no clock decides, and the timing once for real.
#include "tune/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/test_weight.h"
#include "core/philox.h"
#include "kernels/linear/linear.h"
#include "tune/blocking.h"

namespace braid::tune {
namespace {

const Threshold& threshold(const char* name) {
  return *std::ranges::find_if(threshold_table(), [&](const Threshold& t) { return std::string(t.name) == name; });
}

std::vector<Point> points(std::initializer_list<double> ratios) {
  std::vector<Point> list;
  for (const double r : ratios) list.push_back({.rows = std::ssize(list) + 1, .ratio = r});
  return list;
}

TEST(Choose, TheDefaultStaysUnlessAnotherValueGainsMoreThanNoise) {
  const Threshold& t = threshold("panel_task_rows");
  EXPECT_EQ(choose(t, 4, {}).chosen, 4);
  EXPECT_EQ(choose(t, 4, points({1, 1, 1, 1, 1, 1})).chosen, 4);
  EXPECT_EQ(choose(t, 4, points({1.5, 1.5, 1.5, 1.5, 0.5, 0.5})).chosen, 4);  // it is the best
  EXPECT_EQ(choose(t, 4, points({1, 1, 0.95, 0.93, 0.9, 0.9})).chosen, 4);    // noise
  EXPECT_EQ(choose(t, 4, points({1, 1, 1, 1, 1.05, 1.08})).chosen, 4);
  const Finding lower = choose(t, 4, points({1.4, 1.4, 0.8, 0.8, 0.8, 0.8}));
  EXPECT_EQ(lower.chosen, 2);
  EXPECT_NEAR(lower.gain, 1.25, 1e-9);
  EXPECT_EQ(choose(t, 4, points({0.5, 0.5, 0.5, 0.5, 0.5, 0.5})).chosen, 0);
  const Finding higher = choose(t, 4, points({1, 1, 1, 1, 1.2, 1.3, 0.9}));
  EXPECT_EQ(higher.chosen, 6);
  EXPECT_NEAR(higher.gain, std::sqrt(1.2 * 1.3), 1e-9);
  EXPECT_EQ(choose(t, 4, points({1, 1, 1, 1, 0.5, 1.3, 1.3})).chosen, 4);  // what is won later is lost before
}

TEST(Summary, NamesWhatWasTimedAndWhatNoProductAsksFor) {
  const Threshold &few = threshold("panel_few_rows"), &codes = threshold("codes_few_rows");
  const Finding unasked = choose(codes, 4, {}), same = choose(few, 64, points({1, 1}));
  const Finding other = choose(few, 1, points({1, 1.5, 1.5}));
  EXPECT_EQ(summary_of({}), "nothing was timed: no product of this model asks for a threshold on this CPU");
  EXPECT_EQ(summary_of(std::array{unasked}), summary_of({}));
  EXPECT_EQ(summary_of(std::array{same}), "timed: panel_few_rows; the defaults of these are right here");
  EXPECT_EQ(summary_of(std::array{other, unasked}),
            "timed: panel_few_rows; chosen anew: panel_few_rows; not timed, since no product here asks for them: "
            "codes_few_rows");
}

// Way `below` takes 2 + rows, the one above 6: they cross at 4 rows. A drift that slows every later call by a tenth
// cancels out in turns.
TEST(Choose, FindsWhereTwoWaysCrossOnAMachineThatDrifts) {
  const Threshold& t = threshold("panel_few_rows");
  double drift = 1;
  const auto seconds = [&](const Thresholds& set, int64_t rows) {
    drift *= 1.1;
    return drift * (rows <= set.panel_few_rows ? 2.0 + static_cast<double>(rows) : 6.0);
  };
  constexpr int64_t kRows[] = {1, 2, 4, 6, 8, 512, 1024};
  std::vector<Point> found = compare(t, kRows, 8, seconds);
  ASSERT_EQ(found.size(), 6u);  // more rows than the threshold may have
  EXPECT_EQ(choose(t, 64, found).chosen, 4);
  for (const Point& p : found) {
    const double below = 2.0 + static_cast<double>(p.rows);
    EXPECT_NEAR(p.ratio, 6 / below, 1e-9) << p.rows;
    EXPECT_NEAR(p.noise, 0, 1e-9) << p.rows;
  }
}

// A gain counts only where the rounds differ less from each other.
TEST(Choose, NoiseAsLargeAsAGainChoosesNothing) {
  const Threshold& t = threshold("panel_task_rows");
  std::vector<Point> found = points({1, 1, 1, 1, 1.3, 1.3});
  EXPECT_EQ(choose(t, 4, found).chosen, 6);
  for (Point& p : found) p.noise = 0.3;
  EXPECT_EQ(choose(t, 4, found).chosen, 4);
  const Finding higher = choose(t, 4, points({1, 1, 1, 1, 1.5, 1.5, 0.9}));
  int call = 0;
  const auto jumps = [&](const Thresholds& set, int64_t rows) {
    const double way = rows <= set.panel_task_rows ? 1 : 1.15;
    return way * (++call % 8 < 4 ? 1 : std::array{1.0, 1.8, 1.8, 1.0}[static_cast<size_t>(call % 4)]);
  };
  EXPECT_EQ(confirmed(higher, 9, jumps).chosen, 4);
}

TEST(Choose, AGainThatDoesNotComeAgainIsWithdrawn) {
  const Threshold& t = threshold("panel_task_rows");
  const Finding higher = choose(t, 4, points({1, 1, 1, 1, 1.5, 1.5, 0.9}));
  const Finding lower = choose(t, 4, points({1, 1, 0.6, 0.6, 1, 1, 1}));
  ASSERT_EQ(higher.chosen, 6);
  ASSERT_EQ(lower.chosen, 2);
  std::vector<int64_t> asked;
  const auto machine = [&](double below, double above) {
    return [&asked, below, above](const Thresholds& set, int64_t rows) {
      asked.push_back(rows);
      return rows <= set.panel_task_rows ? below : above;
    };
  };
  EXPECT_EQ(confirmed(higher, 3, machine(1, 1.05)).chosen, 4);
  EXPECT_EQ(confirmed(lower, 3, machine(1, 1.3)).chosen, 4);
  EXPECT_EQ(std::ranges::count_if(asked, [](int64_t rows) { return rows < 3 || rows > 6; }), 0);
  EXPECT_EQ(confirmed(higher, 3, machine(1, 1.3)).chosen, 6);
  EXPECT_NEAR(confirmed(higher, 3, machine(1, 1.3)).gain, 1.3, 1e-9);
  EXPECT_EQ(confirmed(lower, 3, machine(1.2, 1)).chosen, 2);
  EXPECT_NEAR(confirmed(lower, 3, machine(1.2, 1)).gain, 1.2, 1e-9);
}

TEST(Tune, TimesEveryThresholdThatProductsAskFor) {
  const TestWeight bf16(Format::bf16, 96, 128, 1), nvfp4(Format::nvfp4, 96, 128, 2);
  const std::vector<Matrices> model = {{{bf16.weight()}, false}, {{nvfp4.weight(), nvfp4.weight()}, true}};
  int64_t steps = 0;
  const std::vector<Finding> findings =
      tune(model, {.threads = 2, .rounds = 1, .codes = CodeDots::a8}, [&](int64_t done, int64_t total) {
        EXPECT_LT(done, total);
        ++steps;
      });
  EXPECT_EQ(findings.size(), threshold_table().size());
  EXPECT_EQ(steps % std::ssize(findings), 0);
  for (const Finding& f : findings) {
    for (const Point& p : f.points) {
      EXPECT_GT(p.ratio, 0) << f.threshold->name;
      EXPECT_LE(p.rows, f.threshold->most);
    }
    // The tasks of experts are their own, and those of dense weights are not of codes.
    if (std::string(f.threshold->name) == "codes_task_rows") {
      EXPECT_TRUE(f.points.empty());
    }
  }
}

TEST(Tune, UnitsAreTheRowsThatTakeTheWeights) {
  const TestWeight bf16(Format::bf16, 96, 128, 1);
  const std::vector<Matrices> model = {{{bf16.weight()}, false}};
  int taken = 0;
  for (const UnitTime& t : units(model, {.threads = 1}, 3)) {
    EXPECT_STRNE(t.row, "ref");
    EXPECT_STRNE(t.row, "codes_a8");
    EXPECT_GT(t.us, 0);
    taken += t.taken ? 1 : 0;
  }
  EXPECT_EQ(taken, 1);
}

// A machine on which one point, of those that the model ranks first, takes less than the others.
TEST(Blockings, TheSearchFindsWhatIsFastAmongTheFirst) {
  const PackedProduct p = training_products({768, 768}, 256, DType::f32, 1)[0];
  const PackedLimits limits;
  const std::vector<packed::Blocking> space = blocking_space(p);
  const std::vector<int> order = ranked_blockings(p, space, limits);
  const auto at = [&](size_t rank) { return space[static_cast<size_t>(order[rank])]; };
  const size_t early = at(2) == default_blocking(p) ? 3 : 2;
  const auto search = [&](size_t rank, double gain) {
    const packed::Blocking fast = at(rank);
    double drift = 1e-3;
    return search_blocking(p, limits, {.trials = 10}, [&, fast, gain](const packed::Blocking& b) {
      return (drift *= 1.001) / (b == fast ? gain : 1);
    });
  };
  const BlockingFinding third = search(early, 1.3);
  EXPECT_EQ(third.chosen, at(early));
  EXPECT_NEAR(third.gain, 1.3, 0.02);
  EXPECT_EQ(third.trials, 10);
  EXPECT_EQ(search(early, 1.02).chosen, third.initial);            // too little
  EXPECT_EQ(search(space.size() - 1, 1.3).chosen, third.initial);  // never tried
}

TEST(Blockings, LongProductsHaveFewerTrialsAndNoiseChoosesNothing) {
  const PackedProduct p = training_products({768, 768}, 256, DType::f32, 1)[2];
  int calls = 0;
  const auto slow = [&](const packed::Blocking&) { return ++calls, 0.5; };
  EXPECT_EQ(search_blocking(p, {}, {}, slow).trials, 3);
  EXPECT_LT(calls, 40);
  const BlockingFinding noisy = search_blocking(p, {}, {}, [&](const packed::Blocking&) {
    return 1e-3 * (1 + 1e-10 * philox({.seed = 3}, static_cast<uint64_t>(++calls))[0]);
  });
  EXPECT_EQ(noisy.chosen, noisy.initial);
}

TEST(Blockings, EveryTrainingProductIsTimedWithTheBitsOfTheDefault) {
  for (const DType x : {DType::f32, DType::bf16}) {
    for (const PackedProduct& p : training_products({200, 140}, 70, x, 2)) {
      BlockingTimer timer(p);
      const packed::Blocking b{.rows = 32, .cols = 96, .depth = 32, .ahead = 1024};
      EXPECT_TRUE(timer.same_bits(b));
      EXPECT_GT(timer.seconds(b), 0);
    }
  }
}

}  // namespace
}  // namespace braid::tune
