#include "eda/fold.h"

#include <algorithm>

#include "sparse/race.h"
#include "sys/interrupt.h"

namespace braid::eda {
namespace {

constexpr int64_t kCostSamples = 64;  // of a batch that is timed: a graph each takes some MB
constexpr int kRounds = 5;

// Losses of every step; fewer if a signal stopped it.
std::vector<double> train_model(QorModel& model, const std::function<void(int64_t)>& done) {
  std::vector<double> losses;
  for (int64_t step = 0; step < model.steps() && sys::caught_signal() == 0; ++step) {
    done(step);
    losses.push_back(model.step(step));
  }
  return losses;
}

std::vector<std::vector<Values>> predictions(const Labels& labels, QorModel& model, int threads) {
  std::vector<std::vector<Values>> all;
  for (size_t d = 0; d < labels.designs.size(); ++d) all.push_back(model.predict(static_cast<int32_t>(d), threads));
  return all;
}

double mean_of(const std::vector<double>& values, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

// On one thread.
void time_predictions(const Labels& labels, const Split& split, const ModelSpec& spec, QorModel& model,
                      FoldResult& result) {
  std::vector<int32_t> held;
  for (size_t d = 0; d < labels.designs.size(); ++d) {
    if (split.held_designs[d] == 0) continue;
    held.push_back(static_cast<int32_t>(d));
    for (const Outcome& o : labels.designs[d].outcomes) result.tool_seconds += o.seconds;
    result.predicted += std::ssize(labels.designs[d].outcomes);
  }
  const auto all = [&] {
    for (const int32_t d : held) model.predict(d, 1);
  };
  result.predict_seconds = sparse::median(sparse::race({all}, kRounds, 0)[0]);
  result.batch = model.batch_cost(std::min(kCostSamples, spec.batch), kRounds);
}

}  // namespace

std::optional<FoldResult> run_fold(const Labels& labels, const ModelSpec& spec, int64_t fold,
                                   const std::function<void(int64_t, int64_t)>& done) {
  const Split split = split_labels(labels, fold);
  QorModel model(labels, split, spec);
  ModelSpec blind = spec;
  blind.network.circuits = false;
  QorModel alone(labels, split, blind);
  const int64_t steps = model.steps();
  const std::vector<double> losses = train_model(model, [&](int64_t step) { done(step, 2 * steps); });
  train_model(alone, [&](int64_t step) { done(steps + step, 2 * steps); });
  if (sys::caught_signal() != 0) return std::nullopt;
  const auto epoch = static_cast<size_t>(steps / spec.epochs);
  FoldResult result{.scores = scores_of(labels, split, predictions(labels, model, spec.threads)),
                    .alone = scores_of(labels, split, predictions(labels, alone, spec.threads)),
                    .distinct = std::ssize(split.samples),
                    .parameters = model.parameters(),
                    .first_loss = mean_of(losses, 0, epoch),
                    .last_loss = mean_of(losses, losses.size() - epoch, losses.size())};
  time_predictions(labels, split, spec, model, result);
  return result;
}

}  // namespace braid::eda
