#include "apps/graph_plan.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/ordered_json.h"
#include "sys/memory.h"
#include "train/graph_tasks.h"
#include "train/grid_nodes.h"
#include "train/origin.h"

namespace braid::apps {

namespace {

// Bytes by kind, as of language models.
void add_memory(const train::Recipe& recipe, train::Objective& objective, nlohmann::ordered_json& j) {
  const auto state = train::state_bytes(recipe, static_cast<double>(objective.masters().trained())).sum();
  j["memory"] = {{"weights, gradients and moments", static_cast<int64_t>(state)}};
  if (const std::optional<int64_t> passes = train::pass_memory(recipe, objective)) {
    j["memory"]["passes of a step"] = *passes;
    j["memory_needed"] = static_cast<int64_t>(state) + *passes;
  }
  j["memory_available"] = sys::memory_available();
}

}  // namespace

void print_graph_plan(const train::Recipe& recipe, bool json) {
  const std::unique_ptr<train::Objective> objective = train::graph_objective(recipe);
  std::optional<train::GridBalance> balance;
  if (!recipe.parallel.grid.empty()) balance = train::balance_of(recipe, dynamic_cast<const train::Nodes&>(*objective));
  for (const std::string& line : train::idle_words(recipe)) fmt::print(stderr, "{}\n", line);
  if (json) {
    nlohmann::ordered_json j = {{"parameters", objective->masters().trained()}};
    for (const train::GraphSize& size : train::sizes_of(*objective)) j[size.name] = size.value;
    add_memory(recipe, *objective, j);
    if (balance) {
      j["imbalance"] = balance->permuted;
      j["imbalance_of_file"] = balance->in_order;
    }
    fmt::print("{}\n", io::dumped(j, 1));
    return;
  }
  fmt::print("{}\n", train::to_toml(recipe, true));
  for (const std::string& line : objective->describe()) fmt::print("{}\n", line);
  if (auto* nodes = dynamic_cast<train::Nodes*>(objective.get())) {
    for (const std::string& line : nodes->explain()) fmt::print("{}\n", line);
  }
  if (!balance) return;
  for (const std::string& line : balance->describe()) fmt::print("{}\n", line);
}

}  // namespace braid::apps
