#include "eda/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "sparse/race.h"
#include "train/schedule.h"

namespace braid::eda {
namespace {

QorSpec with_steps(QorSpec spec, const Labels& labels) {
  spec.steps = std::ssize(labels.recipes[0]);
  return spec;
}

}  // namespace

std::vector<Scale> scales_of(const Labels& labels, const Split& split) {
  std::vector<Scale> scales(labels.designs.size());
  for (size_t d = 0; d < scales.size(); ++d) {
    const std::vector<Sample> samples = split.of(static_cast<int32_t>(d), Part::trained);
    const auto n = static_cast<double>(samples.size());
    for (size_t t = 0; t < kTargetCount && n > 0; ++t) {
      std::vector<double> values;
      values.reserve(samples.size());
      for (const Sample& s : samples)
        values.push_back(labels.designs[d].outcomes[static_cast<size_t>(s.recipe)].values[t]);
      scales[d].mean[t] = std::accumulate(values.begin(), values.end(), 0.0) / n;
      double squares = 0;
      for (const double v : values) squares += (v - scales[d].mean[t]) * (v - scales[d].mean[t]);
      // The mean of equal values may be rounded, and would leave a deviation.
      const bool equal = std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
      scales[d].deviation[t] = equal ? 0 : std::sqrt(squares / n);
    }
  }
  return scales;
}

QorModel::QorModel(const Labels& labels, const Split& split, const ModelSpec& spec)
    : labels_(labels),
      split_(split),
      spec_(spec),
      masters_(DType::f32),
      scales_(scales_of(labels, split)),
      draws_{.seed = static_cast<uint64_t>(spec.seed)} {
  spec_.network = with_steps(spec.network, labels);
  const std::vector<gnn::LayerParam> shapes = params_of(spec_.network);
  params_ = train::own_params(masters_, shapes);
  std::vector<Param*> list;
  for (Param& p : params_) list.push_back(&p);
  train::initialise(masters_, shapes, spec.seed);
  masters_.round(1);
  network_ = std::make_unique<QorNetwork>(spec_.network, params_);
  const train::OptimizerRecipe recipe{.lr = spec.lr, .beta2 = 0.99, .weight_decay = spec.weight_decay};
  const Range all{0, masters_.size()};
  optimizer_ = std::make_unique<train::Optimizer>(recipe, masters_, list, std::span(&all, 1));
  std::vector<int32_t> trained;
  for (size_t i = 0; i < split.samples.size(); ++i) {
    if (split.samples[i].part == Part::trained) trained.push_back(static_cast<int32_t>(i));
  }
  trained_ = train::Epochs(std::move(trained), static_cast<uint64_t>(spec.seed));
}

int64_t QorModel::steps() const { return spec_.epochs * ((trained_.count() + spec_.batch - 1) / spec_.batch); }

std::vector<int32_t> QorModel::drawn(int64_t number) { return trained_.batch(spec_.batch, number); }

void QorModel::take(std::span<const int32_t> samples, bool once) {
  std::vector<int32_t> recipes, places, designs;
  targets_.clear();
  for (const int32_t number : samples) {
    const Sample& s = split_.samples[static_cast<size_t>(number)];
    const auto d = static_cast<size_t>(s.design);
    recipes.push_back(s.recipe);
    designs.push_back(s.design);
    for (size_t t = 0; t < kTargetCount; ++t) {
      const double value = labels_.designs[d].outcomes[static_cast<size_t>(s.recipe)].values[t],
                   deviation = scales_[d].deviation[t];
      targets_.push_back(deviation > 0 ? static_cast<float>((value - scales_[d].mean[t]) / deviation) : 0.0f);
    }
  }
  const std::vector<int32_t> of_samples = designs;
  if (once) {
    std::sort(designs.begin(), designs.end());
    designs.erase(std::unique(designs.begin(), designs.end()), designs.end());
    for (const int32_t d : of_samples)
      places.push_back(static_cast<int32_t>(std::lower_bound(designs.begin(), designs.end(), d) - designs.begin()));
  } else {
    places.resize(designs.size());
    std::iota(places.begin(), places.end(), 0);
  }
  if (spec_.network.circuits && designs != designs_) {
    // Large batches have all designs every time: then timing the ways to multiply pays.
    const auto all = std::count(split_.held_designs.begin(), split_.held_designs.end(), 0);
    circuits_ = circuits_of(labels_, designs, spec_.network.kind,
                            std::ssize(designs) == all ? sparse::Use::often : sparse::Use::once);
  }
  designs_ = std::move(designs);
  picks_ = picks_of(labels_, recipes, places, std::ssize(designs_));
}

double QorModel::run_batch() {
  Ctx ctx{.arena = arena_, .threads = spec_.threads, .tape = &tape_};
  masters_.zero_grads(spec_.threads);
  nn::StateView none;
  gnn::Run run{.ctx = ctx, .seqs = picks_.circuits.receivers, .state = none};
  run.numerics = Numerics::training(DType::f32);
  run.draws = &draws_;
  double loss = 0;
  {
    const Tensor y = network_->forward(run, picks_, network_->circuits(run, circuits_)),
                 dy(arena_, DType::f32, y.shape());
    const auto* got = y.view().as<float>();
    const auto count = static_cast<float>(targets_.size());
    for (size_t i = 0; i < targets_.size(); ++i) {
      const float off = got[i] - targets_[i];
      loss += static_cast<double>(off * off) / static_cast<double>(targets_.size());
      dy.mut().as<float>()[i] = 2 * off / count;
    }
    tape_.add_grad(ctx, y, dy);
  }
  tape_.backward(ctx);
  tape_.clear();
  return loss;
}

double QorModel::step(int64_t number) {
  draws_.step = static_cast<uint64_t>(number);
  take(drawn(number), true);
  const double loss = run_batch();
  Ctx ctx{.arena = arena_, .threads = spec_.threads};
  const double lr =
      train::learning_rate({.kind = "cosine", .warmup = std::min<int64_t>(20, steps() / 4)}, spec_.lr, number, steps());
  optimizer_->step(ctx, number + 1, lr, std::sqrt(optimizer_->squared_norm(ctx)));
  return loss;
}

std::vector<Values> QorModel::predict(int32_t design, int threads) {
  Ctx ctx{.arena = arena_, .threads = threads};
  const int32_t designs[] = {design};
  const Circuits circuits =
      spec_.network.circuits ? circuits_of(labels_, designs, spec_.network.kind, sparse::Use::once) : Circuits{};
  std::vector<int32_t> recipes(labels_.recipes.size());
  std::iota(recipes.begin(), recipes.end(), 0);
  const Picks picks = picks_of(labels_, recipes, std::vector<int32_t>(recipes.size(), 0), 1);
  nn::StateView none;
  gnn::Run run{.ctx = ctx, .seqs = picks.circuits.receivers, .state = none};
  run.numerics = Numerics::training(DType::f32);
  const Tensor y = network_->forward(run, picks, network_->circuits(run, circuits));
  std::vector<Values> values(recipes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t t = 0; t < kTargetCount; ++t)
      values[i][t] = static_cast<double>(y.view().as<float>(static_cast<int64_t>(i))[t]);
  }
  return values;
}

double QorModel::gradient_of(std::span<const int32_t> samples, bool once) {
  take(samples, once);
  return run_batch();
}

QorModel::BatchCost QorModel::batch_cost(int64_t count, int rounds) {
  std::vector<int32_t> samples = drawn(0);
  samples.resize(std::min(samples.size(), static_cast<size_t>(count)));
  const int threads = std::exchange(spec_.threads, 1);
  BatchCost cost{.samples = std::ssize(samples)};
  // The batches are made before: what is timed is their passes.
  take(samples, true);
  cost.circuits = std::ssize(designs_);
  Circuits own = std::move(circuits_);
  Picks own_picks = std::move(picks_);
  designs_.clear();
  take(samples, false);
  const auto swapped = [&] {
    std::swap(own, circuits_);
    std::swap(own_picks, picks_);
    run_batch();
    std::swap(own, circuits_);
    std::swap(own_picks, picks_);
  };
  const std::vector<std::function<void()>> runs = {swapped, [&] { run_batch(); }};
  const auto seconds = sparse::race(runs, rounds, 0);
  cost.once = sparse::median(seconds[0]);
  cost.each = sparse::median(seconds[1]);
  designs_.clear();
  spec_.threads = threads;
  return cost;
}

}  // namespace braid::eda
