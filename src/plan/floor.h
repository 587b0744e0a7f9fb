// The least time that a pass over a model can take on a machine: max(bytes that must be read / read rate, operations /
// rates of their units). Bytes are as stored, tensor by tensor; weights count once per pass, experts only as far
// as they are expected to be active. A measured rate is reported relative to it as floor_fraction.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/numerics.h"
#include "models/model.h"

namespace braid::plan {

// One pass: `sequences` sequences of `tokens` new tokens each, `depth` tokens of each already in its state.
struct Pass {
  int64_t tokens = 1, sequences = 1, depth = 0;
  int64_t logits_rows = 1;  // rows that the head multiplies
  CacheTypes caches{.kv = DType::bf16};
};

enum class WorkKind { weights, experts, state, keys_and_values };

struct Work {
  WorkKind kind = WorkKind::weights;
  std::string what{};  // a tensor; the experts of a layer are one row; states and caches by layer
  double bytes = 0;    // read; for states also written
  double flops = 0;    // a multiplication and an addition are two
  double whole = 0;    // of those, the ones that --activations int8 computes in integers
};

// Bytes and operations per second.
struct Rates {
  double read = 0, real = 0, whole = 0;
};

std::vector<Work> work_of(models::Model& model, const Pass& pass);
Work total(const std::vector<Work>& list);

double floor_seconds(const Work& sum, const Rates& rates);

}  // namespace braid::plan
