#include "apps/bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "compress/choice.h"
#include "io/safetensors.h"
#include "models/experts_apart.h"
#include "models/load.h"
#include "models/presets.h"
#include "models/quant_format.h"
#include "models/quant_plan.h"
#include "models/storage.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

constexpr size_t kSamples = 8;  // sensitivities need a pass for every group and format

std::vector<QuantFormat> candidates(const models::QuantRecipe& recipe) {
  using enum QuantFormat;
  if (recipe.compressed()) return {int3, int4, mxfp4, int8};
  return {nvfp4, fp8};
}

// What a choice may spend: the budget without what is not among the groups.
struct Budget {
  double bytes = 0, values = 0, rest = 0;
};
bool is_table(ParamRole role) { return role == ParamRole::embedding || role == ParamRole::positions; }

// What the recipe makes of the matrices that have no groups: those of fixed formats, and tables and the prediction
// block, of which passes over samples know nothing.
void quantise_ungrouped(const io::ModelPath& path, const models::QuantRecipe& recipe, Budget& budget) {
  const models::Config config = models::load_config(path);
  const models::OpenApart folder = models::open_apart(path, config);
  for (const models::PlannedMatrix& matrix : models::quant_plan(config, recipe)) {
    const models::TensorSpec& tensor = matrix.tensor;
    if ((!is_table(tensor.role) && !tensor.mtp && !matrix.rule.fixed) || !matrix.misfit.empty()) continue;
    budget.rest -= static_cast<double>(folder.source->get(tensor).value.bytes());
    for (const io::TensorSpec& part : models::stored_as("", tensor.shape, matrix.rule.format))
      budget.rest += static_cast<double>(part.bytes());
  }
}

Budget budget_of(const io::ModelPath& path, double bits, const models::QuantRecipe& recipe,
                 const std::vector<quant::SensitiveGroup>& groups) {
  const io::Safetensors files(path.weights);
  Budget out;
  for (const io::StoredTensor& tensor : files.tensors()) {
    if (tensor.view.dtype == DType::u8 || tensor.view.dtype == DType::i32 || tensor.view.dtype == DType::f8_e4m3)
      fail("--bits", {.what = tensor.name + " is quantised already",
                      .hint = "quantising the folder that this one was made from"});
    out.values += static_cast<double>(tensor.view.count());
    out.rest += static_cast<double>(tensor.view.bytes());
  }
  for (const quant::SensitiveGroup& group : groups) {
    out.rest -= static_cast<double>(group.formats.back().bytes);
    if (!recipe.compressed()) out.rest += static_cast<double>(group.matrices) * sizeof(float);
  }
  quantise_ungrouped(path, recipe, out);
  out.bytes = bits * out.values / 8 - out.rest;
  return out;
}

std::vector<std::string> names_of(const quant::SensitiveGroup& group) {
  std::vector<std::string> names;
  for (const auto& [role, scales] : group.roles) names.emplace_back(name_of(role));
  return names;
}

void check_budget(const Budget& budget, const std::vector<quant::SensitiveGroup>& groups, double bits) {
  double least = 0;
  for (const quant::SensitiveGroup& group : groups) {
    const auto smallest = std::min_element(group.formats.begin(), group.formats.end(),
                                           [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    least += static_cast<double>(smallest->bytes);
  }
  if (least > budget.bytes)
    fail("--bits", {.what = "no choice of formats has so few bits",
                    .got = fmt::format("{:g}", bits),
                    .expected = fmt::format("at least {:.3f}", 8 * (least + budget.rest) / budget.values),
                    .hint = "a --recipe that also quantises embedding and head (lightning-nvfp4: the head), or --mtp"});
}

}  // namespace

BitsChoice choose_bits(const CalibrationArgs& o, const models::QuantRecipe& recipe, double bits,
                       const std::vector<std::vector<int32_t>>& samples) {
  const io::ModelPath path = models::find_weights(o.model);
  const std::span few(samples.data(), std::min(samples.size(), kSamples));
  std::optional<report::Progress> progress;
  const std::vector<quant::SensitiveGroup> groups = quant::sensitivities(
      path, recipe, candidates(recipe), few, {.threads = o.threads}, [&](int64_t done, int64_t total) {
        if (!progress) progress.emplace("measuring sensitivity", total);
        progress->at(done);
        return sys::caught_signal() == 0;
      });
  if (groups.empty()) return {};
  const Budget budget = budget_of(path, bits, recipe, groups);
  check_budget(budget, groups, bits);
  compress::Instance instance{.layers = {}, .limits = {budget.bytes}};
  for (const quant::SensitiveGroup& group : groups) {
    auto& variants = instance.layers.emplace_back();
    for (const quant::FormatCost& cost : group.formats)
      variants.push_back({.score = cost.kl, .cost = {static_cast<double>(cost.bytes)}});
  }
  const compress::Choice choice = compress::choose(instance, "--bits");
  BitsChoice out{.whole = true, .recipe = {.name = fmt::format("{} at {:g} bits", recipe.name, bits), .rules = {}}};
  out.kl = choice.score;
  out.bound = choice.bound;
  out.samples = std::ssize(few);
  for (size_t i = 0; i < groups.size(); ++i) {
    const quant::SensitiveGroup& group = groups[i];
    const quant::FormatCost& cost = group.formats[static_cast<size_t>(choice.variants[i])];
    out.groups.emplace_back(group, cost);
    for (const auto& [role, scales] : group.roles) {
      models::QuantRule rule{.roles = {name_of(role)}, .format = cost.format, .scales = scales};
      if (group.layer >= 0) rule.layers = {group.layer};
      out.recipe.rules.push_back(std::move(rule));
    }
  }
  for (const models::QuantRule& rule : recipe.rules) {  // for what has no groups; the rest has its rules above
    if (rule.fixed || rule.mtp) {
      out.recipe.rules.push_back(rule);
      continue;
    }
    for (const ParamRole table : {ParamRole::embedding, ParamRole::positions}) {
      if (std::ranges::find(rule.roles, name_of(table)) != rule.roles.end())
        out.recipe.rules.push_back({.roles = {name_of(table)}, .format = rule.format, .scales = rule.scales});
    }
  }
  if (std::ranges::all_of(out.recipe.rules, [](const auto& r) { return r.format == QuantFormat::bf16; }))
    fail("--bits", {.what = "the budget leaves every matrix as it is",
                    .got = fmt::format("{:g}", bits),
                    .expected = fmt::format("less than {:.3f}", 8 * (budget.rest + budget.bytes) / budget.values)});
  return out;
}

std::string bits_table(const BitsChoice& choice) {
  using report::Align;
  report::Table table({{"layer", Align::right},
                       {"matrices"},
                       {"format"},
                       {"bits each", Align::right},
                       {"KL", Align::right},
                       {"KL of the formats"}});
  for (const auto& [group, cost] : choice.groups) {
    std::string all;
    for (const quant::FormatCost& f : group.formats) {
      if (f.format != QuantFormat::bf16)
        all += fmt::format("{}{} {:.2g}", all.empty() ? "" : ", ", codec_of(f.format).name, f.kl);
    }
    table.row({group.layer < 0 ? "-" : std::to_string(group.layer), fmt::format("{}", fmt::join(names_of(group), ", ")),
               codec_of(cost.format).name,
               fmt::format("{:.2f}", 8 * static_cast<double>(cost.bytes) / static_cast<double>(group.values)),
               fmt::format("{:.2g}", cost.kl), all});
  }
  return table.plain() + fmt::format("\nsum of KL {:.4g}, {}; each measured alone, to the nearest, on {}\n", choice.kl,
                                     choice.bound == choice.kl ? "proven to be the least"
                                                               : fmt::format("at least {:.4g}", choice.bound),
                                     report::counted(choice.samples, "sample"));
}

nlohmann::ordered_json bits_json(const BitsChoice& choice) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [group, cost] : choice.groups) {
    out.push_back({{"layer", group.layer},
                   {"roles", names_of(group)},
                   {"format", codec_of(cost.format).name},
                   {"values", group.values},
                   {"bytes", cost.bytes},
                   {"kl", cost.kl}});
  }
  return out;
}

}  // namespace braid::apps
