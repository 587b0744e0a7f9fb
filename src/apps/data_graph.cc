// braid data graph: graphs in text, or generated, as the file that objective = "graph" trains on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/data_graph_file.h"
#include "apps/data_graph_models.h"
#include "apps/result.h"
#include "graph/graph_write.h"
#include "graph/reorder.h"
#include "io/atomic_file.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

struct DataGraphArgs {
  GraphModel model;
  std::string out, features, classes, order;
  bool directed = false, unweighted = false, force = false, json = false;

  GraphFiles file() const {
    return {.edges = model.source,
            .features = features,
            .classes = classes,
            .train = model.train,
            .seed = model.seed,
            .directed = directed,
            .unweighted = unweighted};
  }
};

// Options that differ from their default, though the source does not read them.
void refuse_options(const DataGraphArgs& o) {
  const GraphModel &m = o.model, plain;
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
      {"--nodes",
       m.nodes != plain.nodes,
       {"blocks", "rmat", "uniform", "powerlaw", "grid", "stencil", "band", "road", "star", "bipartite"}},
      {"--degree", m.degree != plain.degree, {"blocks", "rmat", "uniform", "powerlaw", "band", "bipartite"}},
      {"--spread", m.spread != plain.spread, {"blocks", "powerlaw"}},
      {"--train", m.train != plain.train, {file, "blocks", "motifs"}},
      {"--graphs", m.graphs != plain.graphs, {"motifs"}},
      {"--items", m.items != plain.items, {"bipartite"}},
      {"--classes", m.classes != plain.classes, {"blocks", "bipartite"}},
      {"--width", m.width != plain.width, {"blocks", "bipartite"}},
      {"--homophily", m.homophily != plain.homophily, {"blocks", "bipartite"}},
      {"--signal", m.signal != plain.signal, {"blocks", "bipartite"}},
      {"--seed",
       m.seed != 0,
       {file, "blocks", "rmat", "uniform", "powerlaw", "road", "motifs", "bipartite", "citations"}},
      {"--order",
       !o.order.empty(),
       {file, "blocks", "rmat", "uniform", "powerlaw", "grid", "stencil", "band", "road", "star", "citations"}},
  };
  const std::string_view source = m.generated() ? std::string_view(m.source) : file;
  for (const Reads& reads : table) {
    if (!reads.given || std::ranges::find(reads.sources, source) != reads.sources.end()) continue;
    fail(reads.option, {.what = "does not go with this source",
                        .got = printable(m.source),
                        .expected = fmt::format("{}", fmt::join(reads.sources, ", ")),
                        .hint = "leaving it out"});
  }
  if (!m.generated() && m.train != plain.train && o.classes.empty())
    fail("--train", {.what = "needs classes to train on", .hint = "--labels F.npy"});
}

void check(const DataGraphArgs& o) {
  if (o.model.source.find_first_of("./") == std::string::npos) check_source(o.model.source);
  refuse_options(o);
  const GraphModel& m = o.model;
  within("--nodes", static_cast<double>(m.nodes), 1, 1 << 28);
  within("--degree", m.degree, 0, 1 << 16);
  within("--nodes x --degree", static_cast<double>(m.nodes) * m.degree, 0, static_cast<double>(graph::kMost) / 2);
  within("--spread", m.spread, 0, 1 << 10);
  within("--classes", static_cast<double>(m.classes), 1, 1 << 16);
  within("--width", static_cast<double>(m.width), 1, 1 << 16);
  within("--homophily", m.homophily, 0, 1);
  within("--signal", m.signal, 0, 1e6);
  within("--items", static_cast<double>(m.items), 1, 1 << 28);
  within("--graphs", static_cast<double>(m.graphs), 1, 1 << 20);
  within("--train", m.train, 0, 1);
  if (m.generated()) check_model(m);
  if (!o.order.empty() && !graph::node_order_of(o.order))
    fail("--order", {.what = "no such order",
                     .got = printable(o.order),
                     .expected = fmt::format("{}", fmt::join(graph::kNodeOrders, ", "))});
  if (o.out.empty()) fail("data graph", {.what = "no output is named", .hint = "-o FILE.safetensors"});
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

// A node has no more edges than there are others: what was drawn twice, or from a node to itself, is left out.
void note_spread(const GraphModel& m, const graph::RowStats& stats) {
  constexpr double kNear = 0.7;
  if (m.spread <= 0 || (stats.spread > kNear * m.spread && stats.mean > kNear * m.degree)) return;
  fmt::print(
      stderr,
      "note: degrees of {} nodes are {:.1f} on average and spread by {:.1f}, not {:g} and {:g}: more --nodes allow "
      "more\n",
      stats.rows, stats.mean, stats.spread, m.degree, m.spread);
}

int data_graph(const DataGraphArgs& o) {
  check(o);
  io::check_new_file(o.out, ".safetensors", o.force, "--force");
  if (std::filesystem::path(o.out).extension() != ".safetensors")
    fail("-o",
         {.what = "is not a .safetensors file", .got = printable(o.out), .hint = printable(o.out) + ".safetensors"});
  graph::GraphData data = o.model.generated() ? generate(o.model) : read_graph_files(o.file());
  const graph::RowStats stats = graph::stats_of(data.graph.in);
  nlohmann::ordered_json result = {{"file", o.out},
                                   {"nodes", stats.rows},
                                   {"edges", stats.edges},
                                   {"degree_max", stats.most},
                                   {"degree_99", stats.p99},
                                   {"degree_mean", stats.mean},
                                   {"degree_spread", stats.spread},
                                   {"nodes_without_edges", stats.empty}};
  std::string text = fmt::format("{}: {}", printable(o.out), graph::describe(stats));
  if (const graph::Csr& in = data.graph.in; !in.weight.empty()) {
    const auto [least, most] = std::minmax_element(in.weight.begin(), in.weight.end());
    result["weight_min"] = *least;
    result["weight_max"] = *most;
    text += ", " + graph::describe_weights(in);
  }
  note_spread(o.model, stats);
  if (!o.order.empty()) text += reorder(data, o.order, result);
  graph::write_graph(o.out, data);
  print_result(o.json, result, text);
  return 0;
}

}  // namespace

Action setup_data_graph(Cli& cli) {
  auto o = std::make_shared<DataGraphArgs>();
  cli.positional("source", o->model.source,
                 fmt::format("a .mtx file, a list of edges, or generated: {}", fmt::join(kGraphModels, ", ")));
  cli.option("-o,--out FILE", o->out, "the .safetensors file to write");
  cli.option("--features F.npy", o->features, "of the nodes of a file, [nodes, width] float32");
  cli.option("--labels F.npy", o->classes, "of the nodes of a file: classes from 0, -1 unknown; integers");
  cli.flag("--directed", o->directed, "a line of a list of edges is one edge, from its first node to its second");
  cli.flag("--unweighted", o->unweighted, "do not read weights: values of a .mtx file, the third column of a list");
  cli.option("--train", o->model.train, "share of the nodes of known class to train on; the others are held out");
  cli.option("--nodes", o->model.nodes,
             "generated: nodes; rmat rounds up to a power of two, grid a square, stencil a cube");
  cli.option("--degree", o->model.degree, "generated: mean degree, before repetitions are dropped; rmat, band: even");
  cli.option("--spread", o->model.spread, "powerlaw, blocks: deviation of degrees over their mean; 0: all alike");
  cli.option("--graphs", o->model.graphs, "motifs: graphs, of which half have a clique");
  cli.option("--items", o->model.items, "bipartite: nodes that receive; --nodes send");
  cli.option("--classes", o->model.classes, "blocks, bipartite: classes");
  cli.option("--width", o->model.width, "blocks, bipartite: features of a node");
  cli.option("--homophily", o->model.homophily, "the same: share of edges drawn within a class");
  cli.option("--signal", o->model.signal, "the same: length of the means of the classes, in deviations of the noise");
  cli.option("--order", o->order, "of the nodes: degree, rcm (a narrow band) or labels (communities together)");
  cli.option("--seed", o->model.seed, "the same seed gives the same bytes");
  cli.flag("--force", o->force, "overwrite an older file of tensors, but no model");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return data_graph(*o); };
}

}  // namespace braid::apps
