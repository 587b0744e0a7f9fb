#include "apps/data_graph_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "apps/data_graph_models.h"
#include "graph/generate.h"
#include "graph/read_text.h"
#include "io/npy.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

void need_nodes(const std::string& file, int64_t got, int64_t nodes) {
  if (got == nodes) return;
  fail(printable(file), {.what = "has another number of nodes",
                         .got = std::to_string(got),
                         .expected = fmt::format("{}, as the graph has", nodes)});
}

void read_features(const std::string& path, graph::GraphData& data) {
  const io::Npy file(path);
  if (file.shape().rank != 2 || file.shape()[1] == 0)
    fail(printable(path), {.what = "is not one row per node", .got = to_string(file.shape())});
  data.features = file.shape()[1];
  data.x = file.floats();
}

void read_classes(const std::string& path, graph::GraphData& data) {
  for (const int64_t y : io::Npy(path).integers()) {
    within("a class", static_cast<double>(y), -1, graph::kMostClasses - 1);
    data.y.push_back(static_cast<int32_t>(y));
  }
}

}  // namespace

void within(const char* option, double value, double least, double most) {
  if (!(value >= least && value <= most))
    fail(option,
         {.what = "out of range", .got = fmt::format("{}", value), .expected = fmt::format("{} to {}", least, most)});
}

void check_source(const std::string& source) {
  const std::vector<std::string> models(std::begin(kGraphModels), std::end(kGraphModels));
  if (std::ranges::find(models, source) != models.end() || std::filesystem::exists(source)) return;
  fail("data graph", {.what = "no such file or kind of graph",
                      .got = printable(source),
                      .expected = fmt::format("a file, or {}", fmt::join(models, ", ")),
                      .hint = sys::nearest(source, models)});
}

graph::GraphData read_graph_files(const GraphFiles& files) {
  check_source(files.edges);
  const std::string text = sys::read_file(files.edges), where = printable(files.edges);
  const bool matrix = graph::is_matrix_market(text);
  if (matrix && files.directed)
    fail("--directed", {.what = "does not apply to a Matrix Market file, which says itself whether it is symmetric",
                        .hint = "leaving it out"});
  graph::GraphData data;
  if (!files.features.empty()) read_features(files.features, data);
  if (!files.classes.empty()) read_classes(files.classes, data);
  const int64_t rows = data.features > 0 ? std::ssize(data.x) / data.features : 0,
                least = std::max<int64_t>(rows, std::ssize(data.y));
  within("nodes", static_cast<double>(least), 0, static_cast<double>(graph::kMost));
  const auto weights = files.unweighted ? graph::Weights::ignored : graph::Weights::read;
  graph::TextGraph parsed = matrix ? graph::parse_matrix_market(text, where, weights)
                                   : graph::parse_edge_list(text, where, !files.directed, least, weights);
  if (parsed.removed > 0)
    fmt::print(stderr, "{} self-loops and repeated edges {}\n", parsed.removed,
               parsed.csr.weight.empty() ? "are left out"
                                         : "are no edges of their own: weights of repeated edges are added up, and gcn "
                                           "takes those of self-loops in place of 1");
  data.graph = graph::make_graph(std::move(parsed.csr));
  if (!files.features.empty()) need_nodes(files.features, rows, data.graph.rows());
  if (!files.classes.empty()) {
    need_nodes(files.classes, std::ssize(data.y), data.graph.rows());
    graph::choose_training(data, files.train, static_cast<uint64_t>(files.seed));
  }
  return data;
}

}  // namespace braid::apps
