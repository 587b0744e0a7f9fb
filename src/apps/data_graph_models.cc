#include "apps/data_graph_models.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "report/units.h"
#include "sys/error.h"
#include "sys/memory.h"

namespace braid::apps {
namespace {

// Edges of a node, both ways, as they are drawn.
double drawn_degree(const GraphModel& m) {
  if (m.source == "grid") return 4;
  if (m.source == "stencil") return 26;
  if (m.source == "road") return 2.1;
  return m.source == "star" ? 1 : m.degree;
}

// Of graphs whose size is given.
void need_memory(const GraphModel& m) {
  if (m.source == "motifs" || m.source == "citations") return;
  const bool blocks = m.source == "blocks" || m.source == "bipartite";
  // An edge drawn, both ways, with its transpose and as it is written; a node's row pointers and order. The ends of
  // powerlaw have keys.
  const double kEdge = m.source == "powerlaw" ? 44 : 28, kNode = 48;
  const double nodes = static_cast<double>(m.nodes + (m.source == "bipartite" ? m.items : 0)),
               edges = static_cast<double>(m.nodes) * drawn_degree(m),
               features = blocks ? nodes * static_cast<double>(m.width) * sizeof(float) : 0,
               bytes = kNode * nodes + kEdge * edges + features;
  if (bytes <= static_cast<double>(sys::memory_available())) return;
  fail_environment("memory",
                   {.what = features > bytes / 2 ? "features of all nodes do not fit" : "the graph does not fit",
                    .got = fmt::format("{} free", report::bytes(sys::memory_available())),
                    .expected = report::bytes(static_cast<int64_t>(bytes)),
                    .hint = blocks ? "fewer --nodes or --items, or a smaller --width" : "fewer --nodes"});
}

graph::GraphData with_edges(graph::Csr csr) {
  graph::GraphData data;
  data.graph = graph::make_graph(std::move(csr));
  return data;
}

// The least number whose power reaches the nodes.
int64_t side_of(int64_t nodes, int power) {
  int64_t side = 1;
  while (std::pow(static_cast<double>(side), power) < static_cast<double>(nodes)) ++side;
  return side;
}

}  // namespace

bool GraphModel::generated() const { return std::ranges::find(kGraphModels, source) != std::end(kGraphModels); }

void check_model(const GraphModel& m) {
  if ((m.source == "rmat" || m.source == "band") && (m.degree < 2 || std::fmod(m.degree, 2) != 0))
    fail("--degree", {.what = m.source == "rmat" ? "rmat draws whole edges per node, each with two ends"
                                                 : "a band has as many neighbours on either side",
                      .got = fmt::format("{}", m.degree),
                      .expected = "an even number"});
  need_memory(m);
}

graph::GraphData generate(const GraphModel& m) {
  const auto seed = static_cast<uint64_t>(m.seed);
  const auto edges = static_cast<int64_t>(static_cast<double>(m.nodes) * m.degree / 2);
  if (m.source == "uniform") return with_edges(graph::uniform_graph(m.nodes, edges, seed));
  if (m.source == "rmat") {
    const auto scale = static_cast<int>(std::ceil(std::log2(static_cast<double>(m.nodes))));
    return with_edges(graph::rmat_graph(scale, std::max<int64_t>(1, edges / m.nodes), seed));
  }
  if (m.source == "powerlaw")
    return with_edges(graph::power_law_graph({.nodes = m.nodes, .degree = m.degree, .spread = m.spread, .seed = seed}));
  if (m.source == "grid") return with_edges(graph::grid_graph(side_of(m.nodes, 2), side_of(m.nodes, 2)));
  if (m.source == "stencil") return with_edges(graph::stencil_graph(side_of(m.nodes, 3)));
  if (m.source == "band") return with_edges(graph::band_graph(m.nodes, static_cast<int64_t>(m.degree) / 2));
  if (m.source == "road") return with_edges(graph::road_graph(m.nodes, seed));
  if (m.source == "star") return with_edges(graph::star_graph(m.nodes));
  if (m.source == "motifs") return graph::motif_graphs({.graphs = m.graphs, .train = m.train, .seed = seed});
  if (m.source == "citations") return graph::citation_twin(seed);
  const graph::BlockModel model{.nodes = m.nodes,
                                .classes = m.classes,
                                .features = m.width,
                                .degree = m.degree,
                                .homophily = m.homophily,
                                .signal = m.signal,
                                .spread = m.spread,
                                .train = m.train,
                                .seed = seed};
  return m.source == "bipartite" ? graph::bipartite_blocks(model, m.items) : graph::block_model(model);
}

}  // namespace braid::apps
