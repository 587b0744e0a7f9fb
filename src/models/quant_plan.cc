#include "models/quant_plan.h"

#include <fmt/format.h>

#include "math/blocks.h"

namespace braid::models {

ScaleKey scale_key(const ParamInfo& info) {
  using enum ParamRole;
  const ParamRole role = info.role == k || info.role == v ? q
                         : info.role == gate              ? up
                         : info.role == expert_gate       ? expert_up
                                                          : info.role;
  return {info.mtp, info.layer, info.part, info.expert, role};
}

std::string misfit(const TensorSpec& tensor, QuantFormat format, const nn::ParamSource& files) {
  if (tensor.transposed) return "is stored transposed, which quantised layouts do not support";
  if (!files.has(tensor.name)) return "is part of a stack of experts, which quantised layouts do not support";
  const QuantFormatRow& row = row_of(format);
  if (tensor.cols() % row.block == 0) return {};
  const std::string why =
      fmt::format("has rows of {} values, not a multiple of {} as {} needs", tensor.cols(), row.block, row.name);
  if (!row.compressed) return why + "; fp8 holds them";
  return why + fmt::format("; in another folder {} holds them", tensor.cols() % kNvfp4Block == 0 ? "nvfp4" : "fp8");
}

std::vector<PlannedMatrix> quant_plan(const Config& config, const nn::ParamSource& files, const QuantRecipe& recipe) {
  std::vector<PlannedMatrix> plan;
  const std::string pattern = config.pattern();
  for (const TensorSpec& tensor : inventory(config)) {
    const QuantRule* rule = recipe.find(tensor, pattern);
    if (!rule || rule->format == QuantFormat::bf16 || tensor.shape.rank != 2) continue;
    plan.push_back({tensor, *rule, misfit(tensor, rule->format, files)});
  }
  return plan;
}

}  // namespace braid::models
