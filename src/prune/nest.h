// Makes a nested model (nested.h) of a model, and smaller models of that.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "prune/nested.h"
#include "prune/prune.h"

namespace braid::prune {

// "1,0.75,half=0.5": shares of the whole, with names or without, which are then the numbers; the largest first. The
// whole is always among them. Error for anything else.
std::vector<Budget> parse_budgets(const std::string& text);

struct NestOptions {
  Options prune{};  // the target is each budget's
  std::vector<Budget> budgets{};
  Measure measure = Measure::params;  // or active
};

struct NestedModel {
  Budget budget{};
  Cost cost{};
  double loss = 0;  // on all samples
};
struct NestReport {
  bool whole = false;      // false: stopped by `progress`; nothing was written, unless losses alone were left
  double parent_loss = 0;  // on all samples
  double nested_loss = 0;  // the same, by the folder as it was written
  std::vector<NestedModel> models{};
  Sizes full{};
  int64_t samples = 0, tokens = 0;
};
// Each budget's sizes are found by the search of prune_model, from those of the budget before it: none is larger.
NestReport nest_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                      const NestOptions& options, const Stage& stage);

struct SliceReport {
  bool whole = false;
  Budget budget{};
  Cost cost{};
  Sizes full{};
  int64_t bytes = 0;  // of the files
};
// `out` is an ordinary folder: of the tensors the first rows and columns, and of norms those times their scale.
SliceReport slice_model(const io::ModelPath& nested, const std::string& budget, const std::filesystem::path& out,
                        const Stage& stage);

}  // namespace braid::prune
