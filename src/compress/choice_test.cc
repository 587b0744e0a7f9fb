#include "compress/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compress/dual.h"
#include "support/data.h"
#include "support/error_of.h"
#include "sys/error.h"

namespace braid::compress {
namespace {

// Draws of a distribution differ between standard libraries; the engine's words do not.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}
  int64_t integer(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(engine_() % static_cast<uint64_t>(most - least + 1));
  }
  double real() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

struct Shape {
  int64_t layers = 1, variants = 1, limits = 1;
  bool ragged = true, whole = false;  // whole numbers from 0 to 5 have many ties
  double tightness = 0.5;             // of the limits: 0 the least cost, 1 the largest
};

Instance random_instance(Draws& draws, const Shape& shape) {
  Instance out;
  const auto value = [&] { return shape.whole ? static_cast<double>(draws.integer(0, 5)) : draws.real(); };
  std::vector<double> least(static_cast<size_t>(shape.limits)), most(least);
  for (int64_t l = 0; l < shape.layers; ++l) {
    std::vector<Variant>& layer = out.layers.emplace_back();
    const int64_t variants = shape.ragged ? draws.integer(1, shape.variants) : shape.variants;
    for (int64_t j = 0; j < variants; ++j) {
      Variant& v = layer.emplace_back();
      for (int64_t k = 0; k < shape.limits; ++k) v.cost.push_back(value());
      v.score = value() - (shape.whole ? 2 : 0.25) * v.cost[0];
    }
    for (size_t k = 0; k < least.size(); ++k) {
      const auto by_cost = [k](const Variant& a, const Variant& b) { return a.cost[k] < b.cost[k]; };
      const auto [low, high] = std::ranges::minmax_element(layer, by_cost);
      least[k] += low->cost[k];
      most[k] += high->cost[k];
    }
  }
  for (size_t k = 0; k < least.size(); ++k) {
    const double limit = least[k] + shape.tightness * (most[k] - least[k]);
    out.limits.push_back(shape.whole ? std::floor(limit) : limit);
  }
  return out;
}

// All choices one after another; infinity when none is within the limits.
double enumerated(const Instance& instance, size_t l, double score, std::vector<double>& left) {
  if (l == instance.layers.size()) return score;
  double best = kInfinity;
  for (const Variant& v : instance.layers[l]) {
    bool fits = true;
    for (size_t k = 0; k < left.size(); ++k) {
      left[k] -= v.cost[k];
      fits = fits && left[k] >= -1e-12;
    }
    if (fits) best = std::min(best, enumerated(instance, l + 1, score + v.score, left));
    for (size_t k = 0; k < left.size(); ++k) left[k] += v.cost[k];
  }
  return best;
}
double enumerated(const Instance& instance) {
  std::vector<double> left = instance.limits;
  return enumerated(instance, 0, 0, left);
}

void expect_within(const Instance& instance, const Choice& choice) {
  const std::vector<double> costs = costs_of(instance, choice.variants);
  for (size_t k = 0; k < costs.size(); ++k) EXPECT_LE(costs[k], instance.limits[k] + 1e-9);
  double score = 0;
  for (size_t l = 0; l < instance.layers.size(); ++l)
    score += instance.layers[l][static_cast<size_t>(choice.variants[l])].score;
  EXPECT_NEAR(score, choice.score, 1e-9);
}

TEST(Choice, OptimaAreThoseOfEnumeration) {
  Draws draws(1);
  int64_t impossible = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const Shape shape{.layers = draws.integer(1, 10),
                      .variants = draws.integer(1, 6),
                      .limits = i % 2 == 0 ? 1 : draws.integer(2, 4),
                      .ragged = i % 50 != 0,
                      .whole = i % 3 == 0,
                      .tightness = draws.real()};
    const Instance instance = random_instance(draws, shape);
    const double best = enumerated(instance);
    if (best == kInfinity) {
      ++impossible;
      EXPECT_NE(support::error_of([&] { choose(instance, "i"); }).find("cannot be met"), std::string::npos);
      continue;
    }
    const Choice choice = choose(instance, "i");
    expect_within(instance, choice);
    EXPECT_NEAR(choice.score, best, 1e-9) << "instance " << i;
    EXPECT_EQ(choice.bound, choice.score) << "instance " << i;
  }
  EXPECT_GT(impossible, 20);
  EXPECT_LT(impossible, 300);
}

TEST(Choice, NarrowSearchesHaveValidBounds) {
  Draws draws(2);
  int64_t open = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const Instance instance = random_instance(
        draws, {.layers = 9, .variants = 5, .limits = 1 + i % 4, .whole = i % 2 == 0, .tightness = 0.6});
    const double best = enumerated(instance);
    const Choice choice = choose(instance, "i", {.width = 1});
    expect_within(instance, choice);
    EXPECT_GE(choice.score, best - 1e-9);
    EXPECT_LE(choice.bound, best + 1e-9) << "instance " << i;
    open += choice.bound < choice.score;
  }
  EXPECT_GT(open, 0);
}

// The size of the study of a model of 70 billion parameters: 100 layers of 54 variants.
TEST(Choice, LargeInstancesHaveTightBounds) {
  Draws draws(3);
  for (int64_t limits : {1, 2, 4}) {
    const Instance instance =
        random_instance(draws, {.layers = 100, .variants = 54, .limits = limits, .ragged = false, .tightness = 0.3});
    const Choice choice = choose(instance, "i", {.width = 2048});
    expect_within(instance, choice);
    EXPECT_LE(choice.bound, choice.score);
    EXPECT_GE(choice.bound, choice.score - (limits > 2 ? 0.05 : 0)) << limits << " limits";
  }
}

// Their optima are those of HiGHS (scipy.optimize.milp 1.17.1, relative gap 0).
TEST(Choice, OptimaAreThoseOfAnIntegerProgram) {
  for (const char* name : {"one_limit", "two_limits", "three_limits"}) {
    const io::Json json = io::Json::read(support::data("choice/" + std::string(name) + ".json"));
    const Choice choice = choose(read_instance(json), name);
    EXPECT_NEAR(choice.score, *json.number_of({"optimum"}), 1e-8) << name;
    EXPECT_EQ(choice.bound, choice.score) << name;
  }
}

TEST(Choice, OrderOfLayersAndUnitsDoNotMatter) {
  Draws draws(4);
  for (int64_t i = 0; i < 50; ++i) {
    Instance instance = random_instance(draws, {.layers = 12, .variants = 8, .limits = 1 + i % 3});
    const double score = choose(instance, "i").score;
    std::ranges::reverse(instance.layers);
    instance.limits.back() *= 1e30;
    for (std::vector<Variant>& layer : instance.layers) {
      for (Variant& v : layer) {
        v.cost.back() *= 1e30;
        v.score *= 1e-20;
      }
    }
    EXPECT_NEAR(choose(instance, "i").score * 1e20, score, 1e-9);
  }
}

TEST(Choice, SumsThatRoundMeetTheirLimit) {
  const Instance instance{.layers = {3, {{.score = 1, .cost = {0.1}}, {.score = 2, .cost = {0.05}}}}, .limits = {0.3}};
  EXPECT_EQ(choose(instance, "i").score, 3);
}

TEST(Choice, EqualLayersAreNoTrap) {
  const std::vector<Variant> layer = {{.score = 1, .cost = {1, 3, 2}},
                                      {.score = 1, .cost = {1, 3, 2}},
                                      {.score = 3, .cost = {0, 1, 1}},
                                      {.score = 2, .cost = {2, 0, 1}}};
  const Choice choice = choose({.layers = {40, layer}, .limits = {41.5, 70.5, 61.5}}, "i");
  EXPECT_EQ(choice.bound, choice.score);
}

TEST(Choice, NamesTheLimitThatCannotBeMet) {
  const std::vector<Variant> layer = {{.score = 1, .cost = {1, 4}}, {.score = 2, .cost = {3, 2}}};
  const auto refusal = [&](std::vector<double> limits) {
    return support::error_of([&] { choose({.layers = {layer, layer}, .limits = std::move(limits)}, "i.json"); });
  };
  EXPECT_EQ(refusal({1.5, 9}), "[i.json] limits[0] cannot be met; got 1.5; expected at least 2");
  EXPECT_EQ(refusal({9, -1}), "[i.json] limits[1] cannot be met; got -1; expected at least 4");
  EXPECT_EQ(refusal({4, 5}),
            "[i.json] limits[1] cannot be met beside the limits before it; got 5; expected at least 6");
}

TEST(Choice, BadInstancesAreNamed) {
  const auto refusal = [](const std::string& text) {
    return support::error_of([&] { read_instance(io::Json::parse(text, "i.json")); });
  };
  const auto variant = [&](const std::string& text) {
    return refusal(R"({"layers": [[{"score": 0, "cost": [1]}, )" + text + R"(]], "limits": [2]})");
  };
  EXPECT_EQ(variant(R"({"score": 1, "cost": [2]})"), "");
  EXPECT_EQ(variant(R"({"score": 1, "cost": [2, 3]})"),
            "[i.json] layers[0][1].cost has another length than limits; got a list of 2 entries; expected a list of 1");
  EXPECT_NE(variant(R"({"score": NaN, "cost": [2]})").find("layers[0][1].score is out of range; got nan"),
            std::string::npos);
  EXPECT_NE(variant(R"({"score": 1, "cost": [Infinity]})").find("cost[0] is out of range; got inf"), std::string::npos);
  EXPECT_NE(variant(R"({"score": 1, "cost": [-2]})").find("cost[0] is negative; got -2"), std::string::npos);
  EXPECT_NE(variant(R"({"score": 1, "cost": ["2"]})").find("cost[0] is not a number"), std::string::npos);
  EXPECT_NE(variant(R"({"cost": [2]})").find("layers[0][1].score is missing"), std::string::npos);
  EXPECT_NE(variant("3").find("layers[0][1] is of the wrong kind"), std::string::npos);
  EXPECT_NE(refusal(R"({"layers": [[]], "limits": [1]})").find("layers[0] has no variant"), std::string::npos);
  EXPECT_NE(refusal(R"({"layers": [], "limits": [1]})").find("layers has a wrong length"), std::string::npos);
  EXPECT_NE(refusal(R"({"layers": [3], "limits": [1]})").find("layers[0] is not a list"), std::string::npos);
  EXPECT_NE(refusal(R"({"layers": [[]], "limits": []})").find("limits has a wrong length"), std::string::npos);
  EXPECT_NE(refusal(R"({"layers": [[]]})").find("limits is missing"), std::string::npos);
  EXPECT_NE(refusal("[1]").find("the document is of the wrong kind"), std::string::npos);
}

}  // namespace
}  // namespace braid::compress
