// Totals of a config, without any weights: parameters, and the memory of a sequence (docs/internals/layers.md, State).
#pragma once
#include <cstdint>

#include "models/config.h"

namespace braid::models {

struct Parameters {
  int64_t total = 0;      // without the prediction block
  int64_t active = 0;     // active per token: of the routed experts only its own
  int64_t embedding = 0;  // the table alone, which is looked up and never multiplied; 0 when the head shares it
  int64_t mtp = 0;        // the prediction block
  int64_t tensors = 0;    // all of them, experts one by one
};
Parameters count_parameters(const Config& config);

// Values, not bytes: keys and values are stored as BF16 or FP32, the states as FP32.
struct SequenceValues {
  int64_t kv_per_token = 0, ssm = 0, conv = 0;
  int64_t kv_scales_per_token = 0;  // of INT8: one for each head's key and value
};
SequenceValues count_sequence(const Config& config);

}  // namespace braid::models
