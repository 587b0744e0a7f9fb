#include "models/quant_plan.h"

#include <fmt/format.h>

#include <map>

#include "codec/nvfp4.h"

namespace braid::models {

ParamRole joined_role(ParamRole role) {
  using enum ParamRole;
  switch (role) {
    case k:
    case v:
      return q;
    case gate:
      return up;
    case expert_gate:
    case expert_down:
      return expert_up;
    default:
      return role;
  }
}

ModuleKey module_key(const ParamInfo& info) { return {info.mtp, info.layer, info.part, joined_role(info.role)}; }

ScaleKey scale_key(const ParamInfo& info) {
  const ParamRole role = info.role == ParamRole::expert_down ? info.role : joined_role(info.role);
  return {info.mtp, info.layer, info.part, info.expert, role};
}

std::string misfit(const TensorSpec& tensor, QuantFormat format) {
  if (tensor.transposed) return "is stored transposed, which quantised layouts do not support";
  const QuantCodec& row = codec_of(format);
  if (tensor.cols() % row.block == 0) return {};
  const std::string why =
      fmt::format("has rows of {} values, not a multiple of {} as {} needs", tensor.cols(), row.block, row.name);
  if (!row.compressed) return why + "; fp8 holds them";
  return why + fmt::format("; in another folder {} holds them", tensor.cols() % kNvfp4Block == 0 ? "nvfp4" : "fp8");
}

namespace {

void keep_modules_whole(std::vector<PlannedMatrix>& plan) {
  std::map<ModuleKey, const PlannedMatrix*> first;
  for (const PlannedMatrix& p : plan) {
    if (!p.misfit.empty()) first.try_emplace(module_key(p.tensor), &p);
  }
  for (PlannedMatrix& p : plan) {
    const auto found = first.find(module_key(p.tensor));
    if (found == first.end() || !p.misfit.empty()) continue;
    p.because = found->second->tensor.role;
    p.misfit = "is in one module with " + found->second->tensor.name + ", which " + found->second->misfit;
  }
}

}  // namespace

std::vector<PlannedMatrix> quant_plan(const Config& config, const QuantRecipe& recipe) {
  std::vector<PlannedMatrix> plan;
  const std::string pattern = config.pattern();
  for (const TensorSpec& tensor : inventory(config)) {
    const QuantRule* rule = recipe.find(tensor, pattern);
    if (!rule || rule->format == QuantFormat::bf16 || tensor.shape.rank != 2) continue;
    plan.push_back({tensor, *rule, misfit(tensor, rule->format)});
  }
  keep_modules_whole(plan);
  return plan;
}

}  // namespace braid::models
