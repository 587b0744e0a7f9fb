// Random weights of any config, written shard by shard: to initialise training, and to time shapes without a download.
// Matrices are normal with standard deviation 0.02, which for those that write into the residual stream is divided by
// the square root of their number (GPT-2's rule, and Nemotron-H's); norms are 1, A_log = log U(1, 16), dt =
// softplus(dt_bias) is log-uniform in [1e-3, 1e-1], D = 1. A value is a function of the seed, the tensor's index in the
// model and its own index in the tensor, so that the first layers of a slice are those of the whole model.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/weight.h"
#include "models/config.h"
#include "sys/function_ref.h"

namespace braid::models {

struct RandomWeights {
  Format format = Format::bf16;  // bf16, f8_e4m3 or nvfp4
  uint64_t seed = 0;
  int threads = 1;
};

// Writes model.safetensors, or shards and their index, into `folder`. `progress` gets the bytes written so far;
// returning false stops. Returns whether all was written.
bool write_random_weights(const Config& config, const std::filesystem::path& folder, const RandomWeights& options,
                          const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::models
