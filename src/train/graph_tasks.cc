#include "train/graph_tasks.h"

#include "train/graphs.h"
#include "train/links.h"
#include "train/nodes.h"

namespace braid::train {

std::unique_ptr<Objective> graph_objective(const Recipe& recipe) {
  if (recipe.graph.task == "edge") return std::make_unique<Links>(recipe);
  if (recipe.graph.task == "graph") return std::make_unique<Graphs>(recipe);
  return std::make_unique<Nodes>(recipe);
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
