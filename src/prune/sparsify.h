// Prunes single weights of a model: zeros in the matrices of its layers, in a pattern and at a density
// (masks/pattern.h). Shapes stay, so the folder is that of the model with other values; config.json says what was done
// under "sparsity". The loss is before any training, which `optimizer.keep_zeros` does without filling the zeros in.
//
// Scores of weights are magnitudes, or magnitudes times the norms of the inputs that they multiply over calibration
// data (Wanda, arXiv 2306.11695, eq. 1; there compared within a row, here within a matrix).
//
// Embeddings, the head, routers, and what reads two states at once (loop_in, mtp_in) stay whole.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/param.h"
#include "data/loader.h"
#include "io/model_path.h"
#include "masks/pattern.h"
#include "prune/prune.h"

namespace braid::prune {

enum class WeightScore : uint8_t { magnitude, activations };

struct SparseOptions {
  masks::Spec spec{};
  WeightScore score = WeightScore::activations;
  int64_t samples = 1024;
  int threads = 1;
};

// Matrices of one role.
struct SparseGroup {
  std::string role{};
  int64_t matrices = 0, values = 0, kept = 0;
  double score = 0, kept_score = 0;  // sums over its values, and those that stay
};

struct SparseReport {
  bool whole = false;  // false: stopped by `stage`; nothing was written, unless losses alone were left
  std::vector<SparseGroup> groups{};
  std::vector<std::string> misfits{};  // matrices that the pattern does not fit, and stayed: "name: why"
  int64_t params = 0;                  // of the model
  double parent_loss = 0, child_loss = 0;
  int64_t samples = 0, tokens = 0;
};

// Whether matrices of this role are pruned.
bool is_prunable(ParamRole role);

SparseReport sparsify_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                            const SparseOptions& options, const Stage& stage);

}  // namespace braid::prune
