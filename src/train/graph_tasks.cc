#include "train/graph_tasks.h"

#include "sys/memory.h"
#include "train/graphs.h"
#include "train/links.h"
#include "train/nodes.h"
#include "train/origin.h"

namespace braid::train {

std::unique_ptr<Objective> graph_objective(const Recipe& recipe) {
  if (recipe.graph.task == "edge") return std::make_unique<Links>(recipe);
  if (recipe.graph.task == "graph") return std::make_unique<Graphs>(recipe);
  return std::make_unique<Nodes>(recipe);
}

std::optional<int64_t> pass_memory(const Recipe& recipe, Objective& objective) {
  auto* nodes = dynamic_cast<Nodes*>(&objective);
  if (!nodes || recipe.graph.sample > 0 || !recipe.parallel.grid.empty()) return std::nullopt;
  const std::optional<gnn::StepCount> step = nodes->step();
  return step ? std::optional(step->memory) : std::nullopt;
}

void need_graph_memory(const Recipe& recipe, Objective& objective) {
  const std::optional<int64_t> passes = pass_memory(recipe, objective);
  if (!passes) return;
  const double state =
      copies_of(recipe) * state_bytes(recipe, static_cast<double>(objective.masters().trained())).sum();
  need_memory(recipe, state, static_cast<double>(*passes), sys::memory_available());
}

std::vector<GraphSize> sizes_of(const Objective& objective) {
  if (const auto* links = dynamic_cast<const Links*>(&objective)) {
    const graph::GraphData& d = links->data();
    return {{"nodes", d.graph.rows()},
            {"edges", d.graph.edges()},
            {"features", d.features},
            {"pairs_trained", std::ssize(links->split().trained)},
            {"pairs_held_out", std::ssize(links->split().held_out)}};
  }
  if (const auto* graphs = dynamic_cast<const Graphs*>(&objective)) {
    const graph::GraphData& d = graphs->data();
    return {{"graphs", std::ssize(d.y)},
            {"nodes", d.graph.rows()},
            {"edges", d.graph.edges()},
            {"features", d.features},
            {"classes", d.classes}};
  }
  const auto& nodes = dynamic_cast<const Nodes&>(objective);
  return {{"nodes", nodes.edges().rows},
          {"edges", nodes.edges().edges()},
          {"features", nodes.data().features},
          {"classes", nodes.data().classes}};
}

}  // namespace braid::train
