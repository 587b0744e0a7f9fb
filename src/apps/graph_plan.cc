#include "apps/graph_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "train/grid_nodes.h"

namespace braid::apps {

void print_graph_plan(const train::Recipe& recipe, bool json) {
  train::Nodes nodes(recipe);
  std::optional<train::GridBalance> balance;
  if (!recipe.parallel.grid.empty()) balance = train::balance_of(recipe, nodes);
  if (json) {
    nlohmann::ordered_json j = {{"parameters", nodes.masters().trained()},
                                {"nodes", nodes.stats().rows},
                                {"edges", nodes.stats().edges},
                                {"features", nodes.data().features},
                                {"classes", nodes.data().classes}};
    if (balance) {
      j["imbalance"] = balance->permuted;
      j["imbalance_of_file"] = balance->in_order;
    }
    fmt::print("{}\n", j.dump(1));
    return;
  }
  fmt::print("{}\n", train::to_toml(recipe, true));
  for (const std::string& line : nodes.describe()) fmt::print("{}\n", line);
  if (!balance) return;
  for (const std::string& line : balance->describe()) fmt::print("{}\n", line);
}

}  // namespace braid::apps
