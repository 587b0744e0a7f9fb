// Which matrices of a model become FP8 or NVFP4: rules over roles and layers, the first that fits decides. The recipes
// of the released Nemotron 3 files are built in (their config.json lists what each quantises); any other is a TOML
// file:
//
//   [[rule]]
//   roles = ["mamba_*"]          globs over roles (braid info --json lists them); left out: every matrix
//   layers = [1, 3]              left out: every layer
//   before_attention = true      only layers that an attention layer follows
//   format = "bf16"              bf16 (as it is), fp8 or nvfp4
//   scales = "four-over-six"     of NVFP4: max, four-over-six or mse
//
// What no rule fits stays as it is, and so do tables of embeddings, routers and the prediction block under a glob: a
// rule has to spell their roles.
#pragma once
#include <string>
#include <vector>

#include "math/blocks.h"
#include "models/inventory.h"

namespace braid::models {

struct QuantRule {
  std::vector<std::string> roles{};
  std::vector<int64_t> layers{};
  bool before_attention = false;
  Format format = Format::bf16;
  ScaleSearch scales = ScaleSearch::max;
};

struct QuantRecipe {
  std::string name;
  std::vector<QuantRule> rules;

  // Null: no rule fits. `pattern` has a letter for each layer (Config::pattern).
  const QuantRule* find(const TensorSpec& tensor, const std::string& pattern) const;
};

std::vector<std::string> quant_recipe_names();
// A built-in name or a TOML file. Error for neither, an unknown key or value, or a rule that names no role there is.
QuantRecipe quant_recipe(const std::string& name_or_file);

const char* name_of(ScaleSearch search);
// Error, naming `where`, for another word.
ScaleSearch scale_search(const std::string& where, const std::string& word);

}  // namespace braid::models
