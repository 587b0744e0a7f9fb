#include "apps/graph_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "train/nodes.h"

namespace braid::apps {

void print_graph_plan(const train::Recipe& recipe, bool json) {
  train::Nodes nodes(recipe);
  if (json) {
    const nlohmann::ordered_json j = {{"parameters", nodes.masters().trained()},
                                      {"nodes", nodes.stats().rows},
                                      {"edges", nodes.stats().edges},
                                      {"features", nodes.data().features},
                                      {"classes", nodes.data().classes}};
    fmt::print("{}\n", j.dump(1));
    return;
  }
  fmt::print("{}\n", train::to_toml(recipe, true));
  for (const std::string& line : nodes.describe()) fmt::print("{}\n", line);
}

}  // namespace braid::apps
