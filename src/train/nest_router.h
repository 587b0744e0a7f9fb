// Routers of nested models (Nemotron Elastic, arXiv 2511.16664): for every axis a network that gives each size a
// logit, given the budget. Training draws shares of the sizes from them,
//   soft = softmax((s logits + g) / tau),  g = -log(-log u)      (Gumbel-Softmax, Jang et al. 2017, arXiv 1611.01144)
//   tau = 0.9997^step, s rising from 1 to 10 over the run
// or with probability 1 - 0.996^step the largest of them alone, with the slopes of the soft ones (straight through).
// Logits are W2 leaky(W1 budget + b1) + b2 + prior; the prior is larger at the sizes that the budget starts from.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "prune/soft_sizes.h"

namespace braid::train {

class NestRouter {
 public:
  // `starts`: by budget and axis the index of its size.
  NestRouter(std::span<const prune::SoftAxis> axes, std::vector<std::vector<size_t>> starts, uint64_t seed);

  // Those of a step out of `steps`, from 0.
  prune::Shares draw(size_t budget, int64_t step, int64_t steps);
  // The likeliest size of each axis.
  prune::Shares best(size_t budget) const;
  // One step of Adam, by the slopes of the loss by what draw() returned last.
  void learn(const prune::Shares& slopes, double lr);

  // All that the next draws depend on.
  void write(const std::filesystem::path& file) const;
  void read(const std::filesystem::path& file);

 private:
  // Where the network of an axis lies in the arrays.
  struct Network {
    size_t sizes = 0, w1 = 0, b1 = 0, w2 = 0, b2 = 0;
  };
  // Before and after the first product.
  std::vector<double> hidden(const Network& of, size_t budget) const;
  std::vector<double> logits(size_t axis, size_t budget) const;

  std::vector<std::vector<size_t>> starts_;
  uint64_t seed_;
  std::vector<Network> networks_;
  std::vector<float> values_, first_, second_;  // weights, and their means of gradients and of squares
  int64_t updates_ = 0;
  // Of the last draw.
  size_t budget_ = 0;
  double scale_ = 1;  // s / tau
  prune::Shares soft_;
};

}  // namespace braid::train
