// What a recipe quantises of a model: the matrices that its rules match, with the format of each, or why a format
// cannot hold one.
#pragma once
#include <string>
#include <vector>

#include "models/inventory.h"
#include "models/quant_recipe.h"

namespace braid::models {

struct PlannedMatrix {
  TensorSpec tensor{};
  QuantRule rule{};
  std::string misfit{};  // why the matrix stays as it is; empty: it does not
};

// In the order of the inventory. Rules that leave a matrix as it is (bf16) plan nothing for it.
std::vector<PlannedMatrix> quant_plan(const Config& config, const nn::ParamSource& files, const QuantRecipe& recipe);

// Why a format of files cannot hold a matrix; empty: it can.
std::string misfit(const TensorSpec& tensor, QuantFormat format, const nn::ParamSource& files);

}  // namespace braid::models
