#include "sparse/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "graph/generate.h"
#include "graph/reorder.h"
#include "sparse/problem.h"
#include "sparse/race.h"

namespace braid::sparse {
std::vector<NamedGraph> sample_graphs(bool quick) {
  std::vector<NamedGraph> list;
  const std::vector<int> scales = quick ? std::vector<int>{9, 10} : std::vector<int>{10, 12, 14, 16, 18};
  for (const int scale : scales) {
    const int64_t nodes = int64_t{1} << scale;
    for (const int64_t degree : {3, 12, 48}) {
      if (scale > 16 && degree > 3) continue;
      list.push_back({fmt::format("rmat{}x{}", scale, degree),
                      [=] { return graph::rmat_graph(scale, std::max<int64_t>(degree / 2, 1), 7); }});
      list.push_back({fmt::format("uniform{}x{}", scale, degree),
                      [=] { return graph::uniform_graph(nodes, nodes * degree / 2, 7); }});
    }
    const int64_t side = int64_t{1} << scale / 2;
    list.push_back({fmt::format("grid{}", scale), [=] { return graph::grid_graph(side, nodes / side); }});
    if (scale > 16) list.push_back({fmt::format("strip{}", scale), [=] { return graph::grid_graph(64, nodes / 64); }});
    if (scale < 12) continue;
    list.push_back({fmt::format("road{}", scale), [=] { return graph::road_graph(nodes, 7); }});
    if (scale > 16) continue;
    list.push_back(
        {fmt::format("stencil{}", scale), [=] { return graph::stencil_graph(std::llround(std::cbrt(nodes))); }});
    list.push_back({fmt::format("band{}", scale), [=] { return graph::band_graph(nodes, 8); }});
    if (scale != 14) continue;
    list.push_back({"star14", [=] { return graph::star_graph(nodes); }});
    for (const double degree : {2.0, 8.0, 32.0, 128.0}) {
      for (const double spread : {0.0, 1.0, 4.0})
        list.push_back(
            {fmt::format("powerlaw14x{}s{}", degree, spread),
             [=] { return graph::power_law_graph({.nodes = nodes, .degree = degree, .spread = spread, .seed = 7}); }});
    }
  }
  return list;
}

graph::Csr communities(int64_t nodes, bool ordered) {
  graph::GraphData data = graph::block_model(
      {.nodes = nodes, .classes = nodes / 64, .features = 1, .degree = 27, .homophily = 0.9, .seed = 1});
  if (ordered) graph::permute(data, graph::reordered(data.graph, graph::NodeOrder::labels));
  return std::move(data.graph.in);
}

void measure(const std::string& name, const graph::Csr& csr, const std::vector<int64_t>& widths, int rounds,
             std::vector<Sample>& samples) {
  const graph::RowStats stats = graph::stats_of(csr);
  for (const int64_t width : widths) {
    Problem problem(csr, width);
    std::vector<std::function<void()>> runs;
    std::vector<size_t> which;
    for (size_t way = 0; way < kWays; ++way) {
      if (!ways()[way].packed) runs.push_back(problem.run(ways()[way])), which.push_back(way);
    }
    const auto seconds = race(runs, rounds, 5e-4);
    Sample s{.graph = name, .features = features_of(stats, csr.cols, width, 4)};
    s.seconds.fill(std::numeric_limits<double>::infinity());
    for (size_t k = 0; k < which.size(); ++k)
      s.seconds[which[k]] = *std::min_element(seconds[k].begin(), seconds[k].end());
    samples.push_back(std::move(s));
  }
}

std::string csv_of(std::span<const Sample> samples) {
  std::string text = "graph";
  for (const NamedFeature& f : kFeatures) text += fmt::format(",{}", f.name);
  for (const Way& way : ways()) text += fmt::format(",{}_us", way.name);
  text += '\n';
  for (const Sample& s : samples) {
    text += s.graph;
    for (const NamedFeature& f : kFeatures) text += fmt::format(",{:.6g}", s.features.*f.value);
    for (const double t : s.seconds) text += std::isfinite(t) ? fmt::format(",{:.3f}", 1e6 * t) : ",";
    text += '\n';
  }
  return text;
}

}  // namespace braid::sparse
