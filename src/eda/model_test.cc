// The network, its loss and its gradients beside the formula in double precision; circuits computed once beside once a
// sample; bits on any number of threads; and what it learns where labels are known functions.
#include "eda/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eda/eda_fixture.h"
#include "eda/fold.h"

namespace braid::eda {
namespace {

std::vector<std::pair<std::string, graph::Aig>> named_circuits(int64_t count) {
  std::vector<std::pair<std::string, graph::Aig>> designs;
  for (int64_t i = 0; i < count; ++i)
    designs.emplace_back(fmt::format("{}-{}", i % 2 == 0 ? "wide" : "chain", i), small_circuit(4 + 2 * i, i % 2 == 0));
  return designs;
}

double some_value(size_t design, const Recipe& recipe, size_t target) {
  double value = 50 + 10 * static_cast<double>(design);
  for (size_t t = 0; t < recipe.size(); ++t)
    value += std::sin(static_cast<double>((t + 2 * target) * recipe[t] + design));
  return value;
}

// Nothing is held out but the last design and every fourth recipe.
Split hand_split(const Labels& labels) {
  Split split;
  for (size_t d = 0; d < labels.designs.size(); ++d) split.held_designs.push_back(d + 1 == labels.designs.size());
  for (size_t r = 0; r < labels.recipes.size(); ++r) split.held_recipes.push_back(r % 4 == 3);
  for (size_t d = 0; d < labels.designs.size(); ++d) {
    for (size_t r = 0; r < labels.recipes.size(); ++r)
      split.samples.push_back({.design = static_cast<int32_t>(d),
                               .recipe = static_cast<int32_t>(r),
                               .part = static_cast<Part>(2 * split.held_designs[d] + split.held_recipes[r])});
  }
  return split;
}

ModelSpec small_spec(bool circuits) {
  return {
      .network =
          {.kind = gnn::Kind::sage, .layers = 2, .hidden = 3, .width = 2, .inner = 4, .steps = 4, .circuits = circuits},
      .epochs = 2,
      .batch = 24};
}

// The formulas of network.h and of sage, in double precision; parameters by name.
class Formula {
 public:
  Formula(const Labels& labels, QorModel& model, const QorSpec& spec) : labels_(labels), model_(model), spec_(spec) {}

  using Rows = std::vector<std::vector<double>>;
  double loss(std::span<const Sample> samples, const std::vector<Scale>& scales) {
    double sum = 0;
    for (const Sample& s : samples) {
      const auto d = static_cast<size_t>(s.design), r = static_cast<size_t>(s.recipe);
      const std::vector<double> y = predict(d, labels_.recipes[r]);
      for (size_t t = 0; t < kTargetCount; ++t)
        sum +=
            std::pow(y[t] - (labels_.designs[d].outcomes[r].values[t] - scales[d].mean[t]) / scales[d].deviation[t], 2);
    }
    return sum / static_cast<double>(samples.size() * kTargetCount);
  }

  std::vector<double> predict(size_t design, const Recipe& recipe) {
    std::vector<double> mean(static_cast<size_t>(spec_.width));
    const auto words = static_cast<int64_t>(kSteps.size());
    for (int64_t t = 0; t < spec_.steps; ++t) {
      for (int64_t c = 0; c < spec_.width; ++c) {
        double sum = at("steps.weight", kWindow * words + t, c);
        for (int64_t k = 0; k < kWindow && k <= t; ++k)
          sum += at("steps.weight", k * words + recipe[static_cast<size_t>(t - k)], c);
        mean[static_cast<size_t>(c)] += std::max(sum, 0.0) / static_cast<double>(spec_.steps);
      }
    }
    std::vector<double> u = product("recipe", mean, true);
    if (spec_.circuits) {
      const std::vector<double> own = product("circuit", pooled(labels_.designs[design].nodes), false);
      for (size_t i = 0; i < u.size(); ++i) u[i] += own[i];
    }
    return product("out", relu(product("hidden", relu(u), true)), true);
  }

  // Another value of one weight, which at() then gives.
  std::pair<int64_t, double> moved{-1, 0};

 private:
  double at(const std::string& name, int64_t row, int64_t col) {
    const models::MasterTensor& t = model_.masters().tensor(name);
    const int64_t place = t.offset + (t.shape.rank == 1 ? row : row * t.shape[1] + col);
    const double value = static_cast<double>(model_.masters().values()[static_cast<size_t>(place)]);
    return place == moved.first ? value + moved.second : value;
  }
  std::vector<double> product(const std::string& name, const std::vector<double>& x, bool biased) {
    std::vector<double> y;
    const int64_t out = model_.masters().tensor(name + ".weight").shape[0];
    for (int64_t o = 0; o < out; ++o) {
      double sum = biased ? at(name + ".bias", o, 0) : 0;
      for (size_t i = 0; i < x.size(); ++i) sum += at(name + ".weight", o, static_cast<int64_t>(i)) * x[i];
      y.push_back(sum);
    }
    return y;
  }
  static std::vector<double> relu(std::vector<double> x) {
    for (double& v : x) v = std::max(v, 0.0);
    return x;
  }
  std::vector<double> pooled(const graph::AigNodes& nodes) {
    const std::vector<float> features = features_of(nodes);
    const auto n = static_cast<size_t>(nodes.in.rows);
    Rows x(n);
    for (size_t i = 0; i < n; ++i)
      x[i].assign(features.begin() + static_cast<std::ptrdiff_t>(i) * kFeatures,
                  features.begin() + static_cast<std::ptrdiff_t>(i + 1) * kFeatures);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      const std::string name = std::to_string(layer);
      Rows next;
      for (size_t i = 0; i < n; ++i) {
        std::vector<double> mean(x[0].size());
        for (int64_t e = nodes.in.rowptr[i]; e < nodes.in.rowptr[i + 1]; ++e) {
          for (size_t c = 0; c < mean.size(); ++c)
            mean[c] += x[static_cast<size_t>(nodes.in.col[static_cast<size_t>(e)])][c] /
                       static_cast<double>(nodes.in.degree(static_cast<int64_t>(i)));
        }
        std::vector<double> y = product(name + ".lin_l", mean, true);
        const std::vector<double> own = product(name + ".lin_r", x[i], false);
        for (size_t c = 0; c < y.size(); ++c) y[c] += own[c];
        next.push_back(relu(y));
      }
      x = next;
    }
    std::vector<double> mean(x[0].size()), most = x[0];
    for (const std::vector<double>& row : x) {
      for (size_t c = 0; c < row.size(); ++c)
        mean[c] += row[c] / static_cast<double>(n), most[c] = std::max(most[c], row[c]);
    }
    mean.insert(mean.end(), most.begin(), most.end());
    return mean;
  }

  const Labels& labels_;
  QorModel& model_;
  QorSpec spec_;
};

std::vector<int32_t> trained_samples(const Split& split, size_t most) {
  std::vector<int32_t> list;
  for (size_t i = 0; i < split.samples.size() && list.size() < most; i += 3) {
    if (split.samples[i].part == Part::trained) list.push_back(static_cast<int32_t>(i));
  }
  return list;
}

// Every gradient beside a difference of losses in double precision, and the loss itself.
void expect_gradients(bool circuits) {
  const Labels labels = small_labels(12, 4, named_circuits(4), some_value);
  const Split split = hand_split(labels);
  const ModelSpec spec = small_spec(circuits);
  QorModel model(labels, split, spec);
  for (float& v : model.masters().values()) v += v == 0 ? 0.03f : 0;  // biases move off the kinks of relu
  const std::vector<int32_t> numbers = trained_samples(split, 7);
  std::vector<Sample> samples;
  for (const int32_t n : numbers) samples.push_back(split.samples[static_cast<size_t>(n)]);
  const std::vector<Scale> scales = scales_of(labels, split);
  Formula formula(labels, model, spec.network);
  EXPECT_NEAR(model.gradient_of(numbers, true), formula.loss(samples, scales), 1e-5);
  const std::vector<float> grads(model.masters().grads().begin(), model.masters().grads().end());
  double largest = 0;
  for (const models::MasterTensor& t : model.masters().tensors()) {
    double of_tensor = 0;
    for (int64_t i = t.offset; i < t.offset + t.count(); ++i) {
      constexpr double kMove = 1e-6;
      formula.moved = {i, kMove};
      const double up = formula.loss(samples, scales);
      formula.moved = {i, -kMove};
      const double want = (up - formula.loss(samples, scales)) / (2 * kMove),
                   got = static_cast<double>(grads[static_cast<size_t>(i)]);
      formula.moved = {-1, 0};
      EXPECT_NEAR(got, want, 1e-5 + 1e-4 * std::abs(want)) << t.name << " " << i - t.offset;
      of_tensor = std::max(of_tensor, std::abs(want));
    }
    EXPECT_GT(of_tensor, 0) << t.name;
    largest = std::max(largest, of_tensor);
  }
  EXPECT_GT(largest, 0.01);
}

TEST(QorModel, GradientsOfRecipesAreThoseOfTheFormula) { expect_gradients(false); }
TEST(QorModel, GradientsOfCircuitsAndRecipesAreThoseOfTheFormula) { expect_gradients(true); }

TEST(QorModel, CircuitsOnceAreCircuitsOnceASample) {
  const Labels labels = small_labels(12, 4, named_circuits(5), some_value);
  const Split split = hand_split(labels);
  QorModel model(labels, split, small_spec(true));
  const std::vector<int32_t> samples = trained_samples(split, 11);
  const double once = model.gradient_of(samples, true);
  const std::vector<float> grads(model.masters().grads().begin(), model.masters().grads().end());
  EXPECT_NEAR(model.gradient_of(samples, false), once, 1e-6);
  for (size_t i = 0; i < grads.size(); ++i) EXPECT_NEAR(model.masters().grads()[i], grads[i], 1e-5);
  const QorModel::BatchCost cost = model.batch_cost(8, 1);
  EXPECT_EQ(cost.samples, 8);
  EXPECT_LE(cost.circuits, 4);
  EXPECT_GT(cost.each, 0);
  EXPECT_NEAR(model.gradient_of(samples, true), once, 1e-6);
}

TEST(QorModel, ThreadsChangeNoBit) {
  const Labels labels = small_labels(24, 4, named_circuits(6), some_value);
  const Split split = hand_split(labels);
  const auto weights_of = [&](int threads) {
    ModelSpec spec = small_spec(true);
    spec.network.hidden = 32;
    spec.network.dropout = 0.2f;
    spec.threads = threads;
    QorModel model(labels, split, spec);
    for (int64_t step = 0; step < model.steps(); ++step) model.step(step);
    std::vector<float> all(model.masters().values().begin(), model.masters().values().end());
    for (const Values& v : model.predict(0, threads)) all.push_back(static_cast<float>(v[0]));
    return all;
  };
  const std::vector<float> one = weights_of(1);
  EXPECT_EQ(weights_of(1), one);
  EXPECT_EQ(weights_of(3), one);
}

TEST(QorModel, ADesignOfOneResultIsNoTarget) {
  const Labels labels = small_labels(
      40, 4, named_circuits(6), [](size_t d, const Recipe& r, size_t t) { return d == 0 ? 7 : some_value(d, r, t); });
  const Split split = hand_split(labels);
  EXPECT_EQ(scales_of(labels, split)[0].deviation[0], 0);
  EXPECT_EQ(scales_of(labels, split)[5].mean[0], 0);  // held out
  QorModel model(labels, split, small_spec(true));
  for (int64_t step = 0; step < model.steps(); ++step) EXPECT_TRUE(std::isfinite(model.step(step)));
  std::vector<std::vector<Values>> predicted;
  for (int32_t d = 0; d < 6; ++d) predicted.push_back(model.predict(d, 1));
  const std::vector<Score> scores = scores_of(labels, split, predicted);
  EXPECT_FALSE(scores[0].spearman);
  EXPECT_EQ(summary_of(scores, Part::recipes, 0).left_out, 1);
  EXPECT_EQ(summary_of(scores, Part::recipes, 0).constant, 0);
  // One prediction for all recipes orders nothing: it counts, as 0.
  predicted[1].assign(predicted[1].size(), Values{});
  const Summary flat = summary_of(scores_of(labels, split, predicted), Part::recipes, 0);
  EXPECT_EQ(flat.designs, 4);
  EXPECT_EQ(flat.constant, 1);
  EXPECT_EQ(flat.left_out, 1);
  EXPECT_LE(flat.least, 0);
  EXPECT_EQ(summary_of(scores, Part::recipes, 0).designs, 4);
  EXPECT_EQ(summary_of(scores, Part::designs, 0).designs, 1);
}

// A step gains more in chains than in trees, where the order of two steps matters: only a network that sees both can
// order recipes of either.
double known_value(size_t design, const Recipe& recipe, size_t target) {
  const bool chain = design % 2 == 1;
  double value = 100 + static_cast<double>(design);
  for (size_t t = 0; t < recipe.size(); ++t) {
    if (recipe[t] == 1) value += chain ? -2 : 2;
    if (recipe[t] == 2) value += target == 0 ? -1 : 1;
    if (t > 0 && recipe[t - 1] < 2 && (recipe[t] == 4 || recipe[t] == 5)) value -= 5;
  }
  return value;
}

TEST(QorModel, LearnsWhatCircuitsAndOrderDecide) {
  const Labels labels = small_labels(160, 8, named_circuits(10), known_value);
  const Split split = hand_split(labels);
  const auto spearman_of = [&](bool circuits, Part part) {
    ModelSpec spec = small_spec(circuits);
    spec.network = {.kind = gnn::Kind::sage, .hidden = 8, .width = 16, .inner = 32, .circuits = circuits};
    spec.epochs = 60;
    spec.batch = 128;
    spec.lr = 1e-2;
    QorModel model(labels, split, spec);
    const double first = model.step(0);
    double last = first;
    for (int64_t step = 1; step < model.steps(); ++step) last = model.step(step);
    EXPECT_LT(last, circuits ? 0.2 * first : first);
    std::vector<std::vector<Values>> predicted;
    for (int32_t d = 0; d < 10; ++d) predicted.push_back(model.predict(d, 1));
    return summary_of(scores_of(labels, split, predicted), part, 0);
  };
  const Summary seen = spearman_of(true, Part::recipes), unseen = spearman_of(true, Part::both),
                alone = spearman_of(false, Part::recipes);
  EXPECT_GT(seen.spearman, 0.8);
  EXPECT_GT(seen.spearman, seen.counts);
  EXPECT_GT(unseen.spearman, 0.7);
  EXPECT_LT(alone.spearman, seen.spearman - 0.15);
  EXPECT_LT(seen.regret[3], seen.chance[3]);
}

}  // namespace
}  // namespace braid::eda
