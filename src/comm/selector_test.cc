// Choosing an algorithm by timed calls: the learners against the conditions of their optima, the table of times, and
// the regret at points that were held out.
#include "comm/selector.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/comm_cases.h"
#include "comm/inproc.h"
#include "comm/sim.h"
#include "core/philox.h"
#include "support/error_of.h"

namespace braid::comm {
namespace {

using support::error_of;

std::vector<Features> some_points(size_t n) {
  std::vector<Features> points(n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < 3; ++k) points[i][k] = 8 * uniform(philox({.seed = 7}, 3 * i + k)[0]);
  }
  return points;
}

// Optimal if and only if multipliers balance the classes, and each point lies beyond, on or within the margin by its
// multiplier: 0, between, or the bound (Karush, Kuhn and Tucker).
TEST(Svm, EveryPointMeetsTheConditionsOfTheOptimum) {
  std::vector<Features> points = some_points(90);
  points[41] = points[40], points[43] = points[42];  // with other classes: nothing tells them apart
  std::vector<int> classes;
  for (size_t i = 0; i < points.size(); ++i) {
    const bool noise = i % 17 == 0;  // so that some points cannot be on their side
    classes.push_back((points[i][0] + std::sin(points[i][1]) > 4) != noise ? 1 : -1);
  }
  classes[41] = -classes[40], classes[43] = -classes[42];
  const Svm svm(points, classes, 0.25);
  double balance = 0;
  int zero = 0, between = 0, bound = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double a = svm.multipliers()[i], margin = classes[i] * svm.margin(points[i]);
    balance += a * classes[i];
    ASSERT_GE(a, 0);
    ASSERT_LE(a, Svm::kCost);
    if (a == 0) {
      EXPECT_GE(margin, 1 - 2 * Svm::kAccuracy);
      ++zero;
    } else if (a == Svm::kCost) {
      EXPECT_LE(margin, 1 + 2 * Svm::kAccuracy);
      ++bound;
    } else {
      EXPECT_NEAR(margin, 1, 2 * Svm::kAccuracy);
      ++between;
    }
  }
  EXPECT_NEAR(balance, 0, 1e-9);
  EXPECT_GT(zero, 0);
  EXPECT_GT(between, 0);
  EXPECT_GT(bound, 0);
}

// The function is the sum over points of w_i (1 + x_i . x + kernel) + mean, and (K + penalty I) w = y - mean: so at a
// point it misses the value by penalty w_i, and those w give the function everywhere.
TEST(Ridge, IsTheMinimumOfItsObjective) {
  const double gamma = 0.5;
  const std::vector<Features> points = some_points(12);
  std::vector<double> values;
  double mean = 0;
  for (const Features& p : points) values.push_back(std::exp(0.3 * p[0]) - p[1] * p[2]), mean += values.back() / 12;
  const Ridge ridge(points, values, gamma);
  for (const Features& x : {Features{1, 2, 3}, Features{0, 0, 0}, Features{800, 0, 0}}) {
    double sum = mean, magnitude = std::fabs(mean);
    for (size_t i = 0; i < points.size(); ++i) {
      const double w = (values[i] - ridge.at(points[i])) / Ridge::kPenalty;
      double dot = 1, square = 0;
      for (size_t k = 0; k < 3; ++k)
        dot += x[k] * points[i][k], square += (x[k] - points[i][k]) * (x[k] - points[i][k]);
      sum += w * (dot + std::exp(-gamma * square));
      magnitude += std::fabs(w * dot);
    }
    EXPECT_NEAR(ridge.at(x), sum, 1e-6 * magnitude);
  }
}

std::vector<TimedCall> simulated_calls(Op op, const char* preset, std::initializer_list<int> nodes, int64_t least,
                                       int64_t most) {
  std::vector<TimedCall> calls;
  for (const int n : nodes) {
    Cluster c = *cluster_preset(preset);
    c.nodes = n;
    for (int64_t bytes = least; bytes <= most; bytes *= 2) {
      Request r{.op = op, .type = DType::bf16, .count = bytes / 2 / c.ranks() * c.ranks()};
      const Problem problem = problem_of(r, 0, c.ranks(), c.gpus);
      for (const Algorithm& a : algorithms()) {
        if (a.op != op || a.refuses(problem)) continue;
        r.algorithm = a.name;
        calls.push_back({op, n, c.gpus, r.count * 2, a.name, simulate(c, r).us});
      }
    }
  }
  return calls;
}

TEST(Selector, LosesLittleWhereItWasNotTimed) {
  for (const Op op : {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::all_to_all}) {
    const std::vector<TimedCall> calls = simulated_calls(op, "perlmutter", {2, 4, 8, 16}, 16 << 10, 64 << 20);
    const Regret by_size = regret_on_held_out(calls, Learner::table);
    for (const Learner learner : {Learner::svm, Learner::costs}) {
      const Regret r = regret_on_held_out(calls, learner);
      EXPECT_GT(r.points, 20);
      EXPECT_LE(r.mean, 0.03) << name_of(op) << " " << kLearnerNames[static_cast<int>(learner)] << ", right " << r.right
                              << ", worst " << r.worst;
      EXPECT_LT(r.mean, by_size.mean + 0.005);
    }
  }
}

TEST(Selector, ChoosesTheFastestOfWhatItKnows) {
  std::vector<TimedCall> calls;
  for (const int64_t bytes : {1 << 10, 1 << 15, 1 << 20}) {
    calls.push_back({Op::all_gather, 2, 2, bytes, "ring", bytes > 1 << 12 ? 10.0 : 30.0});
    calls.push_back({Op::all_gather, 2, 2, bytes, "bruck", bytes > 1 << 12 ? 30.0 : 10.0});
  }
  calls.push_back({Op::all_gather, 2, 2, 1 << 10, "linear", 0.1});  // not at every point: it takes no part
  const auto chosen = [&](const Selector& s, int64_t bytes, int per_node = 2) {
    return std::string(
        s.choose(problem_of({.op = Op::all_gather, .type = DType::u8, .count = bytes}, 0, 4, per_node)).name);
  };
  for (const Learner learner : {Learner::svm, Learner::costs}) {
    const Selector s(calls, learner);
    EXPECT_EQ(chosen(s, 1 << 10), "bruck");
    EXPECT_EQ(chosen(s, 1 << 20), "ring");
    const Problem uneven = problem_of({.op = Op::all_gather, .type = DType::u8, .count = 1 << 10}, 0, 4, 0);
    EXPECT_STREQ(s.choose(uneven).name, algorithm_for(uneven, "").name);
    const Problem other = problem_of({.op = Op::all_reduce, .type = DType::u8, .count = 1 << 10}, 0, 4, 2);
    EXPECT_STREQ(s.choose(other).name, algorithm_for(other, "").name);
  }
  EXPECT_EQ(chosen(Selector(calls, Learner::table), 1 << 10),
            algorithm_for(problem_of({.op = Op::all_gather, .type = DType::u8, .count = 1 << 10}, 0, 4, 2), "").name);
}

TEST(Selector, IsWhatCallsOfAWorldTake) {
  std::vector<TimedCall> calls;
  for (const int64_t bytes : {64, 4096}) {
    calls.push_back({Op::all_reduce, 2, 2, bytes, "linear", 1});
    calls.push_back({Op::all_reduce, 2, 2, bytes, "ring", 9});
  }
  run_in_process(4, {.timeout = kTestTimeout, .per_node = 2}, [&](Group& world) {
    std::vector<float> x(64, 1), y(64);
    const auto sent = [&](std::string_view name) {
      const Traffic before = world.traffic();
      world.all_reduce(view_of(x.data(), {64}), mut_view_of(y.data(), {64}), Reduction::sum, name).wait();
      EXPECT_EQ(y[63], 4);
      return world.traffic().messages[0] + world.traffic().messages[1] - before.messages[0] - before.messages[1];
    };
    const int64_t linear = sent("linear"), by_size = sent("");
    world.choose_by("times.csv", world.rank() == 0 ? times_csv(calls) : "");
    EXPECT_EQ(sent(""), linear);
    EXPECT_NE(by_size, linear);
  });
}

TEST(Times, ComeBackAsTheyWereWritten) {
  const std::vector<TimedCall> calls = {{Op::all_to_all, 3, 8, 12345, "pairwise", 1.5},
                                        {Op::all_reduce, 1, 1, 0, "ring", 0.25}};
  const std::vector<TimedCall> read = read_times("times.csv", times_csv(calls));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(times_csv(read), times_csv(calls));
  EXPECT_EQ(read[0].per_node, 8);
}

TEST(Times, AreRefusedInOneLine) {
  const std::string head = std::string(kTimesHeader) + "\n";
  const auto error = [&](const std::string& csv) { return error_of([&] { read_times("t.csv", csv); }); };
  EXPECT_NE(error("").find("[t.csv] has no timed calls"), std::string::npos);
  EXPECT_NE(error("bytes,us\n").find("[t.csv:1] is not a table of timed calls"), std::string::npos);
  for (const auto& [line, says] : {std::pair("all_reduce,2,2,64,ring", "number of fields"),
                                   {"all_reduce,2,2,64,ring,1,2", "number of fields"},
                                   {"barrier,2,2,64,linear,1", "not an operation"},
                                   {"all_reduce,0,2,64,ring,1", "nodes is out of range"},
                                   {"all_reduce,2,-2,64,ring,1", "per_node is out of range"},
                                   {"all_reduce,2,2,6x,ring,1", "bytes is out of range"},
                                   {"all_reduce,2,2,64,rong,1", "no such algorithm"},
                                   {"all_reduce,2,2,64,ring,nan", "us is out of range"},
                                   {"all_reduce,2,2,64,ring,0", "us is out of range"}}) {
    const std::string text = error(head + line + "\n");
    EXPECT_NE(text.find("[t.csv:2]"), std::string::npos) << text;
    EXPECT_NE(text.find(says), std::string::npos) << text;
  }
  const std::string twice = "all_reduce,2,2,64,ring,1\n";
  EXPECT_NE(error(head + twice + twice).find("[t.csv:3] the same call again"), std::string::npos);
}

}  // namespace
}  // namespace braid::comm
