#include "models/quant_recipe.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "io/toml.h"
#include "sys/error.h"
#include "sys/glob.h"

namespace braid::models {
namespace {

using enum ScaleSearch;

constexpr std::array kSearches = {"max", "four-over-six", "mse"};

const std::vector<std::string> kExpertModules = {"expert_*"}, kShared = {"up", "gate", "down"},
                               kMamba = {"mamba_in", "mamba_out"}, kLinear = {"linear_*"}, kHead = {"head"};
const std::vector<std::string> kProducts = {"expert_*", "up", "gate", "down", "mamba_in", "mamba_out", "linear_*"};

QuantRule rule(const std::vector<std::string>& roles, QuantFormat format, ScaleSearch scales = max) {
  return {.roles = roles, .format = format, .scales = scales};
}

// One for each format: of ModelOpt's the products that the released files quantise, of the others every matrix. Then
// the released files (docs/internals/formats.md): Nano keeps the Mamba layers before attention, the most sensitive.
std::vector<QuantRecipe> built_in() {
  using enum QuantFormat;
  const QuantRule sensitive{.roles = kMamba, .before_attention = true};
  return {{"fp8", {rule(kProducts, fp8)}},
          {"nvfp4", {rule(kProducts, nvfp4)}},
          {"mxfp4", {rule({}, mxfp4)}},
          {"int8", {rule({}, int8)}},
          {"int4", {rule({}, int4)}},
          {"int3", {rule({}, int3)}},
          {"nano-fp8", {sensitive, rule(kProducts, fp8)}},
          {"nano-nvfp4", {sensitive, rule(kProducts, nvfp4)}},
          {"super-nvfp4", {rule(kExpertModules, nvfp4, mse), rule(kShared, fp8), rule(kMamba, fp8)}},
          {"ultra-nvfp4", {rule(kExpertModules, nvfp4, four_over_six), rule(kShared, fp8), rule(kMamba, fp8)}},
          {"lightning-nvfp4",
           {rule(kExpertModules, nvfp4, four_over_six), rule(kShared, nvfp4, four_over_six), rule(kMamba, fp8),
            rule(kHead, nvfp4, four_over_six)}}};
}

// Only a rule that spells these roles out matches them.
bool is_delicate(const TensorSpec& tensor) {
  switch (tensor.role) {
    case ParamRole::embedding:
    case ParamRole::positions:
    case ParamRole::head:
    case ParamRole::router:
      return true;
    default:
      return false;
  }
}

bool fits(const QuantRule& rule, const TensorSpec& tensor, const std::string& pattern) {
  if (tensor.mtp && !rule.mtp) return false;
  const std::string role = name_of(tensor.role);
  if (is_delicate(tensor)) {
    if (std::find(rule.roles.begin(), rule.roles.end(), role) == rule.roles.end()) return false;
  } else if (!rule.roles.empty() && !sys::matches_any(rule.roles, role)) {
    return false;
  }
  if (!rule.layers.empty() && std::find(rule.layers.begin(), rule.layers.end(), tensor.layer) == rule.layers.end())
    return false;
  const auto next = static_cast<size_t>(tensor.layer + 1);
  return !rule.before_attention || (tensor.layer >= 0 && next < pattern.size() && pattern[next] == '*');
}

QuantFormat format_of(const io::Json& rule) {
  const io::Json word = rule.need({"format"});
  const std::optional<QuantFormat> format = quant_format(word.as_string());
  if (!format) word.refuse("is not a format", "bf16, fp8, nvfp4, mxfp4, int8, int4 or int3");
  return *format;
}

bool is_a_role(const std::string& glob) {
  for (int role = 0; role <= static_cast<int>(ParamRole::mtp_in); ++role) {
    const auto r = static_cast<ParamRole>(role);
    if (is_matrix(r) && sys::matches(glob, name_of(r))) return true;
  }
  return false;
}

QuantRule read_rule(const io::Json& json) {
  constexpr std::array<std::string_view, 6> kKeys = {"roles", "layers", "before_attention", "mtp", "format", "scales"};
  for (const auto& [key, value] : json.members()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      value.refuse("is not a key of a rule", "roles, layers, before_attention, mtp, format or scales");
  }
  QuantRule out{.format = format_of(json)};
  if (const auto roles = json.get({"roles"})) {
    for (const io::Json& role : roles->items()) {
      if (!is_a_role(role.as_string()))
        role.refuse("fits no role of a matrix", "mamba_in, expert_*, head, ... (docs/models.md)");
      out.roles.push_back(role.as_string());
    }
  }
  if (const auto layers = json.get({"layers"})) {
    for (const io::Json& layer : layers->items()) out.layers.push_back(layer.as_int({0, 1 << 16}));
  }
  out.before_attention = json.bool_of({"before_attention"}).value_or(false);
  out.mtp = json.bool_of({"mtp"}).value_or(false);
  if (const auto scales = json.get({"scales"}))
    out.scales = scale_search(json.document() + " " + scales->path(), scales->as_string());
  if (out.scales != max && codec_of(out.format).scale_bytes == 0)
    json.need({"scales"})
        .refuse("searches scales of blocks, and " + std::string(codec_of(out.format).name) + " has none",
                "nvfp4, mxfp4, int8, int4 or int3 as the format");
  if (out.scales == four_over_six && codec_of(out.format).compressed)
    json.need({"scales"}).refuse("is a search of NVFP4", "max or mse");
  return out;
}

}  // namespace

const char* name_of(ScaleSearch search) { return kSearches[static_cast<size_t>(search)]; }

ScaleSearch scale_search(const std::string& where, const std::string& word) {
  const auto found = std::find(kSearches.begin(), kSearches.end(), word);
  if (found == kSearches.end())
    fail(where, {.what = "is not a scale search", .got = printable(word), .expected = "max, four-over-six or mse"});
  return static_cast<ScaleSearch>(found - kSearches.begin());
}

const QuantRule* QuantRecipe::find(const TensorSpec& tensor, const std::string& pattern) const {
  if (!is_matrix(tensor.role)) return nullptr;
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const QuantRule& r) { return fits(r, tensor, pattern); });
  return found == rules.end() ? nullptr : &*found;
}

bool QuantRecipe::compressed() const {
  return std::ranges::any_of(rules, [](const QuantRule& r) { return codec_of(r.format).compressed.has_value(); });
}

void QuantRecipe::put_first(const std::string& where, ParamRole role, QuantFormat format) {
  const bool other = std::ranges::any_of(rules, [&](const QuantRule& r) {
    return r.format != QuantFormat::bf16 &&
           codec_of(r.format).compressed.has_value() != codec_of(format).compressed.has_value();
  });
  if (format != QuantFormat::bf16 && other)
    fail(where, {.what = "is of another layout than " + name + ", and a folder has one",
                 .got = codec_of(format).name,
                 .expected = compressed() ? "mxfp4, int8, int4 or int3" : "nvfp4 or fp8"});
  rules.insert(rules.begin(), QuantRule{.roles = {name_of(role)}, .format = format, .fixed = true});
}

std::vector<std::string> quant_recipe_names() {
  std::vector<std::string> names;
  for (const QuantRecipe& recipe : built_in()) names.push_back(recipe.name);
  return names;
}

QuantRecipe quant_recipe(const std::string& name_or_file) {
  for (QuantRecipe& recipe : built_in()) {
    if (recipe.name == name_or_file) return std::move(recipe);
  }
  if (!name_or_file.ends_with(".toml") && !std::filesystem::exists(name_or_file)) {
    std::string names;
    for (const std::string& name : quant_recipe_names()) names += (names.empty() ? "" : ", ") + name;
    fail("--recipe",
         {.what = "no such recipe", .got = printable(name_or_file), .expected = "a TOML file, or one of " + names});
  }
  const io::Json json = io::read_toml(name_or_file);
  QuantRecipe recipe{.name = name_or_file, .rules = {}};
  for (const auto& [key, value] : json.members()) {
    if (key != "rule") value.refuse("is not a key of a recipe", "[[rule]]");
    for (const io::Json& r : value.items()) recipe.rules.push_back(read_rule(r));
  }
  if (recipe.rules.empty())
    fail(printable(name_or_file), {.what = "has no rule", .expected = "[[rule]] with a format"});
  const bool modelopt = std::ranges::any_of(
      recipe.rules, [](const QuantRule& r) { return r.format == QuantFormat::fp8 || r.format == QuantFormat::nvfp4; });
  if (modelopt && recipe.compressed())
    fail(printable(name_or_file), {.what = "has formats of two layouts, and a folder has one",
                                   .expected = "fp8 and nvfp4, or mxfp4, int8, int4 and int3"});
  return recipe;
}

}  // namespace braid::models
