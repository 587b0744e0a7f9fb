// How much a model loses when one group of its matrices (of one layer, those that readers have in one module: q, k and
// v; gate and up; all experts; or those of one role) is quantised and nothing else: the Kullback-Leibler divergence of
// its predictions from the model's own, on samples. That is the score of a choice of formats under a budget of bytes
// (compress/choice.h), which adds the groups' scores up, as if they did not interact. Matrices are rounded to the
// nearest. A pass begins at the layer of the group, from the states before it, which are kept: layers times tokens
// times width in FP32.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/model_path.h"
#include "models/quant_recipe.h"
#include "sys/function_ref.h"

namespace braid::quant {

struct FormatCost {
  QuantFormat format = QuantFormat::bf16;  // bf16: as it is
  double kl = 0;                           // nats, the mean over tokens
  int64_t bytes = 0;                       // in files, with scales
};

struct SensitiveGroup {
  int layer = -1;                            // -1: of the head
  std::map<ParamRole, ScaleSearch> roles{};  // and the recipe's search for each
  int64_t matrices = 0, values = 0;
  std::vector<FormatCost> formats{};  // those that hold all of its matrices, as they are last
};

struct SensitivityOptions {
  int threads = 1;
};

// The groups of the matrices that `recipe` quantises, each in every one of `formats`; the prediction block and tables
// are not among them. Empty: stopped by `progress`, which gets passes done and in total. Error as calibrate
// (calibrate.h) has them, and when a divergence is not finite.
std::vector<SensitiveGroup> sensitivities(const io::ModelPath& path, const models::QuantRecipe& recipe,
                                          std::span<const QuantFormat> formats,
                                          std::span<const std::vector<int32_t>> samples,
                                          const SensitivityOptions& options,
                                          const sys::FunctionRef<bool(int64_t, int64_t)>& progress);

}  // namespace braid::quant
