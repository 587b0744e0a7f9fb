// What pruning to a pattern costs a trained model, before and after a short training that keeps the zeros, and when the
// product that skips them is faster than the dense one (repro_shfl_bw.cc).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "masks/pattern.h"

namespace braid::apps {

struct ShflBwStudy {
  std::string model = "tiny", dir = "shfl-bw";  // dir exists
  std::vector<double> densities = {0.75, 0.5, 0.25};
  int64_t block = 16, steps = 60, threads = 0;
  int64_t train = 4000, valid = 64;     // conversations
  int64_t samples = 64, held_out = 32;  // rows that importance and losses are measured on
  bool quick = false;
};

// One pattern at one density.
struct PrunedOutcome {
  masks::Pattern pattern = masks::Pattern::unstructured;
  double density = 0;   // of the matrices that were pruned, as it came out
  double retained = 0;  // share of the importance
  double loss = 0, trained_loss = 0;
  std::string folder{};  // of the pruned model
};

struct PrunedStudy {
  double loss = 0, trained_loss = 0;  // of the model as it is, and after the same training
  std::vector<PrunedOutcome> outcomes{};
};

// Stops at a signal (sys/interrupt.h), with what there is so far. `done` is told of every model.
PrunedStudy prune_and_train(const ShflBwStudy& study, const std::function<void(int64_t, int64_t)>& done);

// One thread: how many times as fast as the dense product of the same class of activations.
struct SpeedCell {
  int64_t rows = 0, cols = 0, tokens = 0;
  DType type = DType::f32;
  std::vector<double> ratios{};  // by density
  double break_even = 0;         // the density at which both take as long; 0: below all, 1: above all
};
struct SpeedStudy {
  std::vector<double> densities{};
  std::vector<SpeedCell> cells{};
};

// Steps of one answer, one thread, with BF16 products: a pruned model whose products skip zeros over the same one whose
// products multiply by them, and the bytes of the matrices concerned.
struct DecodeSpeed {
  masks::Pattern pattern = masks::Pattern::shfl_bw;
  double density = 0;
  int64_t matrices = 0, bytes = 0, dense_bytes = 0;
  double tokens_s = 0, ratio = 0;
};
std::vector<DecodeSpeed> time_steps(const ShflBwStudy& study, const PrunedStudy& pruned, int64_t rounds);

SpeedStudy time_products(const ShflBwStudy& study, int64_t rounds, const std::function<void(int64_t, int64_t)>& done);

}  // namespace braid::apps
