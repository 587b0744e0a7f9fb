// Parameters of a model with other sizes, by arithmetic alone: a search counts hundreds of thousands of them.
#pragma once
#include <cstdint>
#include <span>

#include "prune/axes.h"

namespace braid::prune {

struct Cost {
  int64_t params = 0;  // with the prediction block
  int64_t active = 0;  // per token: without it, and of the routed experts only the chosen
};

class CostModel {
 public:
  // `order` ranks the layers, the best first: of Sizes[layers] the first so many stay. Both outlive this.
  CostModel(const models::Config& config, std::span<const int64_t> order);
  Cost of(const Sizes& sizes) const;

 private:
  const models::Config& config_;
  std::span<const int64_t> order_;
  Sizes full_;
};

}  // namespace braid::prune
