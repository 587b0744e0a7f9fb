// Generated graphs by name, for braid data graph.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/generate_tasks.h"

namespace braid::apps {

// What is generated in place of a file.
inline constexpr std::string_view kGraphModels[] = {"blocks", "rmat", "uniform", "powerlaw", "grid",      "stencil",
                                                    "band",   "road", "star",    "motifs",   "bipartite", "citations"};

// The options of all of them.
struct GraphModel {
  std::string source;  // a name above, or a file
  int64_t nodes = 1024, classes = graph::BlockModel{}.classes, width = graph::BlockModel{}.features, items = 512,
          graphs = graph::MotifGraphs{}.graphs, seed = 0;
  double degree = graph::BlockModel{}.degree, spread = 0, homophily = graph::BlockModel{}.homophily,
         signal = graph::BlockModel{}.signal, train = graph::BlockModel{}.train;

  bool generated() const;
};

// Error unless the options are in range and the graph fits in memory. `source` is generated.
void check_model(const GraphModel& model);
graph::GraphData generate(const GraphModel& model);

}  // namespace braid::apps
