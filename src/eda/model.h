// QorModel: a QorNetwork in training on the samples of a split, and its predictions. What it learns of a design are
// deviations: (value - mean) / standard deviation, both over the design's trained samples, since the order of recipes
// within a design is the question, and designs differ by far more than recipes do.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "eda/network.h"
#include "models/master_weights.h"
#include "train/graph_weights.h"
#include "train/optimizer.h"

namespace braid::eda {

struct ModelSpec {
  QorSpec network{};  // its steps are those of the labels
  int64_t epochs = 120, batch = 256, seed = 1;
  double lr = 3e-3, weight_decay = 0.01;
  int threads = 1;
};

using Values = std::array<double, kTargetCount>;

struct Scale {  // of a design
  Values mean{}, deviation{};
};
// Of the trained samples; of other designs zeros.
std::vector<Scale> scales_of(const Labels& labels, const Split& split);

class QorModel {
 public:
  // Labels and split outlive it.
  QorModel(const Labels& labels, const Split& split, const ModelSpec& spec);

  int64_t steps() const;  // of all epochs
  // Trains on batch `number`, from 0; the mean squared deviation before.
  double step(int64_t number);
  // Of every recipe on a design, in deviations from its mean.
  std::vector<Values> predict(int32_t design, int threads);

  int64_t parameters() const { return masters_.trained(); }
  models::MasterWeights& masters() { return masters_; }

  // A training step without its update, on the first `count` samples of batch 0: circuits computed once for each
  // that is in it, or once for each sample. What it costs, and how many circuits there are.
  struct BatchCost {
    int64_t samples = 0, circuits = 0;
    double once = 0, each = 0;  // seconds of one thread
  };
  BatchCost batch_cost(int64_t count, int rounds);
  // Gradients of the loss of these samples, both ways; for tests.
  double gradient_of(std::span<const int32_t> samples, bool once);

 private:
  void take(std::span<const int32_t> samples, bool once);
  double run_batch();
  std::vector<int32_t> drawn(int64_t number);

  const Labels& labels_;
  const Split& split_;
  ModelSpec spec_;
  models::MasterWeights masters_;
  std::vector<Param> params_;
  std::unique_ptr<QorNetwork> network_;
  std::unique_ptr<train::Optimizer> optimizer_;
  std::vector<Scale> scales_;
  train::Epochs trained_;  // samples
  nn::Draws draws_;
  // Of the batch: its distinct designs, and what is computed.
  std::vector<int32_t> designs_;
  Circuits circuits_;
  Picks picks_;
  std::vector<float> targets_;  // [samples, kTargetCount]
  Arena arena_;
  Tape tape_;
};

}  // namespace braid::eda
