// Block-wise local distillation (Puzzle, arXiv 2411.19146, section 2.2): a variant is trained alone to give the output
// of its parent block from the parent's input, all other blocks left out:
//   loss = sum |o - o_p|^2 / sum |o_p|^2 over the tokens of a batch
// Adam over all parameters of the block and its norm, FP32; the learning rate falls along a cosine to a tenth.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "data/batch.h"
#include "puzzle/parent.h"

namespace braid::puzzle {

struct DistillOptions {
  int64_t tokens = 0;  // for each variant; 0: it is not trained
  double lr = 1e-3;
  int64_t batch_tokens = 512;  // of a step, at least; whole rows
  int threads = 1;
  std::function<bool()> go_on{};  // asked before each step; false: what was trained so far is returned
};

// The streams of rows before and after one block of the parent.
struct DistillRow {
  const data::Batch* row = nullptr;
  std::vector<float> before{}, after{};  // [T, D]
};

// `first`: values that are not cut. Those that are returned are in place of all of the block's parameters, rounded to
// the types of the files.
Values distilled(Parent& parent, const Site& site, size_t index, const Variant& variant, const Values& first,
                 std::span<const DistillRow> rows, const DistillOptions& options);

}  // namespace braid::puzzle
