// braid data graph: graphs in text, or generated, as the file that objective = "graph" trains on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/data_graph_file.h"
#include "apps/result.h"
#include "graph/generate_tasks.h"
#include "graph/graph_write.h"
#include "graph/reorder.h"
#include "io/atomic_file.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/memory.h"

namespace braid::apps {
namespace {

struct DataGraphArgs {
  std::string source, out, features, classes, order;
  int64_t nodes = 1024, model_classes = graph::BlockModel{}.classes, width = graph::BlockModel{}.features, items = 512,
          graphs = graph::MotifGraphs{}.graphs, seed = 0;
  double degree = graph::BlockModel{}.degree, homophily = graph::BlockModel{}.homophily,
         signal = graph::BlockModel{}.signal, train = graph::BlockModel{}.train;
  bool directed = false, unweighted = false, force = false, json = false;

  GraphFiles file() const {
    return {.edges = source,
            .features = features,
            .classes = classes,
            .train = train,
            .seed = seed,
            .directed = directed,
            .unweighted = unweighted};
  }
};

bool is_model(const std::string& source) {
  return std::find(std::begin(kGraphModels), std::end(kGraphModels), source) != std::end(kGraphModels);
}

// Options that differ from their default, though the source does not read them.
void refuse_unread(const DataGraphArgs& o) {
  const DataGraphArgs plain;
  struct Reads {
    const char* option;
    bool given;
    std::vector<std::string_view> sources;
  };
  const std::string_view file = "a file";
  const Reads table[] = {
      {"--features", !o.features.empty(), {file}},
      {"--labels", !o.classes.empty(), {file}},
      {"--directed", o.directed, {file}},
      {"--unweighted", o.unweighted, {file}},
      {"--nodes", o.nodes != plain.nodes, {"blocks", "rmat", "uniform", "grid", "bipartite"}},
      {"--degree", o.degree != plain.degree, {"blocks", "rmat", "uniform", "bipartite"}},
      {"--train", o.train != plain.train, {file, "blocks", "motifs"}},
      {"--graphs", o.graphs != plain.graphs, {"motifs"}},
      {"--items", o.items != plain.items, {"bipartite"}},
      {"--classes", o.model_classes != plain.model_classes, {"blocks", "bipartite"}},
      {"--width", o.width != plain.width, {"blocks", "bipartite"}},
      {"--homophily", o.homophily != plain.homophily, {"blocks", "bipartite"}},
      {"--signal", o.signal != plain.signal, {"blocks", "bipartite"}},
      {"--seed", o.seed != 0, {file, "blocks", "rmat", "uniform", "motifs", "bipartite", "citations"}},
      {"--order", !o.order.empty(), {file, "blocks", "rmat", "uniform", "grid", "citations"}},
  };
  const std::string_view source = is_model(o.source) ? std::string_view(o.source) : file;
  for (const Reads& reads : table) {
    if (!reads.given || std::ranges::find(reads.sources, source) != reads.sources.end()) continue;
    fail(reads.option, {.what = "does not go with this source",
                        .got = printable(o.source),
                        .expected = fmt::format("{}", fmt::join(reads.sources, ", ")),
                        .hint = "leaving it out"});
  }
  if (!is_model(o.source) && o.train != plain.train && o.classes.empty())
    fail("--train", {.what = "needs classes to train on", .hint = "--labels F.npy"});
}

// Of graphs whose size is given.
void need_memory(const DataGraphArgs& o) {
  const bool blocks = o.source == "blocks" || o.source == "bipartite";
  if (!blocks && o.source != "rmat" && o.source != "uniform" && o.source != "grid") return;
  // An edge drawn, both ways, with its transpose and as it is written; a node's row pointers and order.
  constexpr double kEdge = 28, kNode = 48;
  const double nodes = static_cast<double>(o.nodes + (o.source == "bipartite" ? o.items : 0)),
               edges = static_cast<double>(o.nodes) * (o.source == "grid" ? 4 : o.degree),
               features = blocks ? nodes * static_cast<double>(o.width) * sizeof(float) : 0,
               bytes = kNode * nodes + kEdge * edges + features;
  if (bytes <= static_cast<double>(sys::memory_available())) return;
  fail_environment("memory",
                   {.what = features > bytes / 2 ? "features of all nodes do not fit" : "the graph does not fit",
                    .got = fmt::format("{} free", report::bytes(sys::memory_available())),
                    .expected = report::bytes(static_cast<int64_t>(bytes)),
                    .hint = blocks ? "fewer --nodes or --items, or a smaller --width" : "fewer --nodes"});
}

void check(const DataGraphArgs& o) {
  refuse_unread(o);
  within("--nodes", static_cast<double>(o.nodes), 1, 1 << 28);
  within("--degree", o.degree, 0, 1 << 16);
  within("--nodes x --degree", static_cast<double>(o.nodes) * o.degree, 0, static_cast<double>(graph::kMost) / 2);
  within("--classes", static_cast<double>(o.model_classes), 1, 1 << 16);
  within("--width", static_cast<double>(o.width), 1, 1 << 16);
  within("--homophily", o.homophily, 0, 1);
  within("--signal", o.signal, 0, 1e6);
  within("--items", static_cast<double>(o.items), 1, 1 << 28);
  within("--graphs", static_cast<double>(o.graphs), 1, 1 << 20);
  within("--train", o.train, 0, 1);
  if (o.source == "rmat" && (o.degree < 2 || std::fmod(o.degree, 2) != 0))
    fail("--degree", {.what = "rmat draws whole edges per node, each with two ends",
                      .got = fmt::format("{}", o.degree),
                      .expected = "an even number"});
  if (is_model(o.source)) need_memory(o);
  if (!o.order.empty() && !graph::node_order_of(o.order))
    fail("--order", {.what = "no such order",
                     .got = printable(o.order),
                     .expected = fmt::format("{}", fmt::join(graph::kNodeOrders, ", "))});
  if (o.out.empty()) fail("data graph", {.what = "no output is named", .hint = "-o FILE.safetensors"});
}

graph::GraphData with_edges(graph::Csr csr) {
  graph::GraphData data;
  data.graph = graph::make_graph(std::move(csr));
  return data;
}

graph::GraphData generated(const DataGraphArgs& o) {
  const auto seed = static_cast<uint64_t>(o.seed);
  const auto edges = static_cast<int64_t>(static_cast<double>(o.nodes) * o.degree / 2);
  if (o.source == "uniform") return with_edges(graph::uniform_graph(o.nodes, edges, seed));
  if (o.source == "rmat") {
    const auto scale = static_cast<int>(std::ceil(std::log2(static_cast<double>(o.nodes))));
    return with_edges(graph::rmat_graph(scale, std::max<int64_t>(1, edges / o.nodes), seed));
  }
  if (o.source == "grid") {
    const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(o.nodes))));
    return with_edges(graph::grid_graph(side, side));
  }
  if (o.source == "motifs") return graph::motif_graphs({.graphs = o.graphs, .train = o.train, .seed = seed});
  if (o.source == "citations") return graph::citation_twin(seed);
  const graph::BlockModel model{.nodes = o.nodes,
                                .classes = o.model_classes,
                                .features = o.width,
                                .degree = o.degree,
                                .homophily = o.homophily,
                                .signal = o.signal,
                                .train = o.train,
                                .seed = seed};
  return o.source == "bipartite" ? graph::bipartite_blocks(model, o.items) : graph::block_model(model);
}

// Returns what the order changes, and the time that it takes.
std::string reorder(graph::GraphData& data, const std::string& order, nlohmann::ordered_json& result) {
  const double before = graph::mean_span(data.graph.in);
  const auto begin = std::chrono::steady_clock::now();
  graph::permute(data, graph::reordered(data.graph, *graph::node_order_of(order)));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double after = graph::mean_span(data.graph.in);
  result["order"] = {{"name", order}, {"seconds", took.count()}, {"mean_span_before", before}, {"mean_span", after}};
  return fmt::format("\nordered by {} in {:.2f} s: the ends of an edge are {:.1f} nodes apart, {:.1f} before{}", order,
                     took.count(), after, before, after > before ? ": better without --order" : "");
}

int data_graph(const DataGraphArgs& o) {
  check(o);
  io::check_new_file(o.out, ".safetensors", o.force, "--force");
  if (std::filesystem::path(o.out).extension() != ".safetensors")
    fail("-o",
         {.what = "is not a .safetensors file", .got = printable(o.out), .hint = printable(o.out) + ".safetensors"});
  graph::GraphData data = is_model(o.source) ? generated(o) : read_graph_files(o.file());
  const graph::RowStats stats = graph::stats_of(data.graph.in);
  nlohmann::ordered_json result = {{"file", o.out},
                                   {"nodes", stats.rows},
                                   {"edges", stats.edges},
                                   {"degree_max", stats.most},
                                   {"degree_mean", stats.mean},
                                   {"nodes_without_edges", stats.empty}};
  std::string text = fmt::format("{}: {}", printable(o.out), graph::describe(stats));
  if (const graph::Csr& in = data.graph.in; !in.weight.empty()) {
    const auto [least, most] = std::minmax_element(in.weight.begin(), in.weight.end());
    result["weight_min"] = *least;
    result["weight_max"] = *most;
    text += ", " + graph::describe_weights(in);
  }
  if (!o.order.empty()) text += reorder(data, o.order, result);
  graph::write_graph(o.out, data);
  print_result(o.json, result, text);
  return 0;
}

}  // namespace

Action setup_data_graph(Cli& cli) {
  auto o = std::make_shared<DataGraphArgs>();
  cli.positional(
      "source", o->source,
      "a .mtx file, a list of edges, or blocks, rmat, uniform, grid, motifs, bipartite, citations: generated");
  cli.option("-o,--out FILE", o->out, "the .safetensors file to write");
  cli.option("--features F.npy", o->features, "of the nodes of a file, [nodes, width] float32");
  cli.option("--labels F.npy", o->classes, "of the nodes of a file: classes from 0, -1 unknown; integers");
  cli.flag("--directed", o->directed, "a line of a list of edges is one edge, from its first node to its second");
  cli.flag("--unweighted", o->unweighted, "do not read weights: values of a .mtx file, the third column of a list");
  cli.option("--train", o->train, "share of the nodes of known class to train on; the others are held out");
  cli.option("--nodes", o->nodes, "generated: nodes; rmat and grid round up to a power of two, a square");
  cli.option("--degree", o->degree, "generated: mean degree; rmat: even, before repetitions are dropped");
  cli.option("--graphs", o->graphs, "motifs: graphs, of which half have a clique");
  cli.option("--items", o->items, "bipartite: nodes that receive; --nodes send");
  cli.option("--classes", o->model_classes, "blocks, bipartite: classes");
  cli.option("--width", o->width, "blocks, bipartite: features of a node");
  cli.option("--homophily", o->homophily, "the same: share of edges drawn within a class");
  cli.option("--signal", o->signal, "the same: length of the means of the classes, in deviations of the noise");
  cli.option("--order", o->order, "of the nodes: degree, rcm (a narrow band) or labels (communities together)");
  cli.option("--seed", o->seed, "the same seed gives the same bytes");
  cli.flag("--force", o->force, "overwrite an older file of tensors, but no model");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return data_graph(*o); };
}

}  // namespace braid::apps
