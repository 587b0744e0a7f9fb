// One model from several of the same shape, tensor by tensor, in FP64 and rounded once, to the type of the first:
//   mean   y = sum of w_i x_i, where the w_i sum to 1      (model soups, arXiv 2203.05482)
//   task   y = x_0 + sum over i > 0 of w_i (x_i - x_0)    (task arithmetic, arXiv 2212.04089)
//   slerp  y = sin((1 - t) a) / sin(a) x_0 + sin(t a) / sin(a) x_1, with a the angle between the two tensors as flat
//          vectors; linear where |cos a| > 0.9995 or one of them is zero (Shoemake, SIGGRAPH 1985; the bound is the one
//          in common use)
// Weights of 0 leave their model out, so slerp at 0 and 1 is the first and the second model, bit for bit.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/model_path.h"
#include "sys/function_ref.h"

namespace braid::models {

enum class MergeRule : uint8_t { mean, task, slerp };

struct MergeModel {
  io::ModelPath path;  // its name is the one in messages
  double weight = 1;   // w_i; of the second model of slerp t, and of the first of task and slerp not used
};

struct MergeReport {
  bool whole = false;  // false: stopped by `progress`, and nothing was written
  int64_t tensors = 0, values = 0;
  std::vector<std::string> notes;  // on what was not merged
};

// Writes the folder `out`, which appears whole or not at all: weights under the names and in the types of the first
// model, whose config, tokenizer, template, generation settings and nested.json are copied. Memory is that of a piece
// of a tensor.
//
// Error for a GGUF file, a quantised model, models that differ in nested.json, in a tensor's name or shape, in a number
// of the config that the function depends on, or in a vocabulary; for a value that is not finite, read or made. Whole
// numbers, such as masks, are copied, and have to be the same. Two tensors are no difference:
//   a prediction block that not all have: the first one's is copied
//   a head next to the embedding that it is tied to: left out unless all have it
// `progress` gets bytes done and in total; returning false stops.
MergeReport merge_models(std::span<const MergeModel> models, MergeRule rule, const std::filesystem::path& out,
                         int threads, const sys::FunctionRef<bool(int64_t, int64_t)>& progress);

}  // namespace braid::models
