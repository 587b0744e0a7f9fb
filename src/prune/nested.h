// Nested models (Nemotron Elastic, arXiv 2511.16664): the units of every axis lie in the order of their importance, so
// that the first n of them are a smaller model, which needs no training to be cut out. Heads are ordered inside what
// they share: query heads inside their key head, Mamba heads inside their group of B and C, experts inside theirs.
// Layers stay where they are; a smaller model skips those of the least importance.
//
// nested.json beside the config lists the smaller models by their budgets.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/json.h"
#include "prune/cut_model.h"

namespace braid::prune {

struct Budget {
  std::string name{};
  double share = 1;               // of the whole model's parameters, or of the active ones, that was asked for
  Sizes sizes{};                  // of every axis that the model has
  std::vector<int64_t> layers{};  // that stay, ascending
  // Of RMSNorms over fewer channels (cut_model.h): what their weights are multiplied by, one number for each group, by
  // the name of the weight in the config.
  std::map<std::string, std::vector<float>> norm_scale{};
};

// The largest first.
struct Nested {
  std::string measure = "params";  // or active: what shares are of
  std::vector<Budget> budgets{};
  // What sizes that are found later need: layers, the most important first, and energies of norms (Scores::energy).
  // Empty in files without them.
  std::vector<int64_t> layer_order{};
  std::map<std::string, std::vector<double>> energy{};

  // By its name, or by a number that is its share. Error that lists them.
  const Budget& find(const std::string& where, const std::string& budget) const;
};

// All units by importance; layers too, the best first.
Keep order_of(const models::Config& config, const Scores& scores);
// All units as they are.
Keep order_of(const models::Config& config);
// The first units of an order, and its best layers, ascending.
Keep first_of(const models::Config& config, const Keep& order, const Sizes& sizes);
// What stays of a nested model for a budget.
Keep keep_of(const models::Config& config, const Layouts& layouts, const Budget& budget);

// Of `keep`, which has the scales of norms.
Budget budget_of(const models::Config& config, const Layouts& layouts, const Keep& keep, const Sizes& sizes);

// Nested::energy of a model whose units are in an order: all that `order` has.
std::map<std::string, std::vector<double>> energy_in_order(const Layouts& layouts, const Scores& scores,
                                                           const Keep& order);

std::string nested_text(const Nested& nested);
// Error when there is no such file, or it does not fit the model of `config`.
Nested read_nested(const std::filesystem::path& folder, const models::Config& config, const Layouts& layouts);

}  // namespace braid::prune
