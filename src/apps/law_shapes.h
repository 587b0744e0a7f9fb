// Shapes for a budget of compute: a config wider, narrower, deeper and shallower (sweep_shape.h), of each depth the
// width with the least loss that a fit predicts for the tokens that the budget leaves.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "apps/sweep_shape.h"
#include "io/json.h"
#include "law/fit.h"

namespace braid::apps {

struct PlannedShape {
  SweepShape shape{};
  int64_t heads = 0;              // of attention; 0: none
  double params = 0, active = 0;  // as models/count.h counts them
  double flops_per_token = 0, tokens = 0;
  double loss = 0;
  law::Range interval{};   // of the loss at this shape, by all draws
  bool narrowest = false;  // no narrower one can be made: the best may be
};

struct ShapeSpec {
  io::Json config;
  int64_t length = 4096;  // tokens of a sequence, which attention's FLOPs depend on
  bool active = false;    // the fit's parameters are the active ones
};

// Depths around the config's by factors of sqrt(2), as far as a width fits; losses by the law of width and depth if the
// fit has one. Error where none does, and where the fit's parameters cannot be those of this config.
std::vector<PlannedShape> plan_shapes(const law::Fit& fit, double flops, const ShapeSpec& spec);

}  // namespace braid::apps
