// FFN fusion (arXiv 2503.18908; Llama-Nemotron Ultra, arXiv 2505.00949, section 2.3). Where attention was removed
// (puzzle/), feed-forward blocks follow each other with nothing between them. Such a run becomes one block as wide as
// all of them together, which reads the residual stream before the run:
//   x + f1(x) + f2(x) + ...    in place of    x1 = x + f1(x), x2 = x1 + f2(x1), ...
// with f_i(x) = down_i act(up_i norm_i(x)). The norms read the same x, so that they differ in their weights alone:
// these go into the columns of up and gate, and the norm of the wide block has ones. It is an approximation, as good as
// the blocks add little to what they read, and saves the steps that waited for each other, not products.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/model_path.h"
#include "models/config.h"
#include "prune/prune.h"

namespace braid::prune {

// Blocks that follow each other with nothing between them, two or more, by layer and part.
struct BlockAt {
  size_t layer = 0, part = 0;
};
using FfnRun = std::vector<BlockAt>;
// Dense feed-forward blocks of one kind, without biases. Layers without blocks are nothing between them.
std::vector<FfnRun> ffn_runs(const models::Config& config);

struct FuseReport {
  bool whole = false;                          // false: stopped by `stage`; nothing stays
  std::vector<std::vector<int64_t>> layers{};  // of every run; the first has the wide block
  std::vector<int64_t> widths{};               // of the wide blocks
  int64_t layers_before = 0, layers_after = 0;
  int64_t bytes = 0;  // of the files
};
// Weights are rounded once, to the type that the files have. Error where no block follows another, for quantised
// weights, and for norms other than RMSNorm.
FuseReport fuse_model(const io::ModelPath& model, const std::filesystem::path& out, const Stage& stage);

}  // namespace braid::prune
