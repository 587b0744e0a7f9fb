// Which matrices of a model are quantised, and to what: rules over roles and layers, the first match wins. The recipes
// of the released Nemotron 3 files are built in (their config.json lists what each quantises); any other is a TOML
// file:
//
//   [[rule]]
//   roles = ["mamba_*"]          globs over roles (docs/models.md); omitted: every matrix
//   layers = [1, 3]              omitted: every layer
//   before_attention = true      only layers that an attention layer follows
//   mtp = true                   the prediction block's matrices as well, whose layers count on from the model's
//   format = "bf16"              bf16 (as it is), fp8, nvfp4, mxfp4, int8, int4 or int3
//   scales = "mse"               of blocks: max, mse, or of NVFP4 four-over-six
//
// A matrix that no rule matches stays as it is. Globs do not match embeddings, heads and routers: a rule has to spell
// their roles. No released file quantises the prediction block, nor does a rule without `mtp`.
#pragma once
#include <string>
#include <vector>

#include "codec/scale_search.h"
#include "models/inventory.h"
#include "models/quant_format.h"

namespace braid::models {

struct QuantRule {
  std::vector<std::string> roles{};
  std::vector<int64_t> layers{};
  bool before_attention = false, mtp = false;
  QuantFormat format = QuantFormat::bf16;
  ScaleSearch scales = ScaleSearch::max;
  bool fixed = false;  // a budget of bits leaves the format as it is
};

struct QuantRecipe {
  std::string name;
  std::vector<QuantRule> rules;

  // Null: no rule matches. `pattern` has a letter for each layer (Config::pattern).
  const QuantRule* find(const TensorSpec& tensor, const std::string& pattern) const;
  // Whether it writes the layout of compressed-tensors, not ModelOpt's: a folder has one of the two.
  bool compressed() const;
  // A rule before all others: matrices of `role`, which has to be spelled, in this format whatever the others say.
  // Error, naming `where`, for a format of another layout than theirs.
  void put_first(const std::string& where, ParamRole role, QuantFormat format);
};

std::vector<std::string> quant_recipe_names();
// A built-in name or a TOML file. Error for neither, an unknown key or value, a rule that matches no role, or formats
// of two layouts.
QuantRecipe quant_recipe(const std::string& name_or_file);

const char* name_of(ScaleSearch search);
// Error, naming `where`, for any other word.
ScaleSearch scale_search(const std::string& where, const std::string& word);

}  // namespace braid::models
