// What a recipe quantises of a model: the matrices that its rules match, with the format of each, or why a format
// cannot hold one.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "models/inventory.h"
#include "models/quant_recipe.h"

namespace braid::models {

struct PlannedMatrix {
  TensorSpec tensor{};
  QuantRule rule{};
  std::string misfit{};                 // why the matrix stays as it is; empty: it does not
  ParamRole because = ParamRole::none;  // which matrix of its module does not fit, if it is another
};

// Readers have one module, of one format, for q, k and v, one for gate and up, and one for the experts of a layer: the
// first of such roles; of other matrices their own.
ParamRole joined_role(ParamRole role);
// That module of the model.
using ModuleKey = std::tuple<bool, int, int, ParamRole>;
ModuleKey module_key(const ParamInfo& info);

// Readers make one product of q, k and v, and one of gate and up (of each expert), with one scale of a whole tensor:
// the largest of the parts' scales, to which they do not round again. So all matrices of one key have the same. Others
// have keys of their own.
using ScaleKey = std::tuple<bool, int, int, int, ParamRole>;
ScaleKey scale_key(const ParamInfo& info);

// In the order of the inventory, experts one by one (experts_apart.h). Rules that leave a matrix as it is (bf16) plan
// nothing for it. Where a format cannot hold one matrix of a module, the others stay as they are with it.
std::vector<PlannedMatrix> quant_plan(const Config& config, const QuantRecipe& recipe);

// Why a format of files cannot hold a matrix; empty: it can.
std::string misfit(const TensorSpec& tensor, QuantFormat format);

}  // namespace braid::models
