#include "graph/graph_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "graph/graph_numbers.h"
#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::graph {
namespace {

struct Tensors {
  const std::vector<io::StoredTensor>& list;
  const std::string& where;

  const View* find(std::string_view name) const {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& t) { return t.name == name; });
    return found == list.end() ? nullptr : &found->view;
  }
  View need(std::string_view name, DType dtype, int rank) const {
    const View* view = find(name);
    if (!view) missing(name);
    if (view->dtype != dtype || view->shape.rank != rank)
      fail(where, {.what = fmt::format("{} has another type or shape", name),
                   .got = fmt::format("{} {}", name_of(view->dtype), to_string(view->shape)),
                   .expected = fmt::format("{} with {} dimension{}", name_of(dtype), rank, rank == 1 ? "" : "s")});
    return *view;
  }
  // Edges alone, as `data graph star` and a list of edges give them, are a graph that nothing can be learned from.
  [[noreturn]] void missing(std::string_view name) const {
    const char* what = name == "x" ? "features" : name == "y" ? "classes" : nullptr;
    if (!what || !find("rowptr") || !find("col"))
      fail(where, {.what = fmt::format("has no tensor {}", name), .expected = "a file of braid data graph"});
    const std::string option = name == "x" ? "--features" : "--labels";
    fail(where,
         {.what = fmt::format("is a graph without {}: it has no tensor {}", what, name),
          .expected = name == "x" ? "x [nodes, width] F32" : "y [nodes] I64",
          .hint = fmt::format("braid data graph EDGES {} F.npy, or a source that has {}: blocks", option, what)});
  }
  // Copied: a file may hold them at any address.
  std::vector<int64_t> integers(std::string_view name, int64_t count = -1) const {
    const View view = need(name, DType::i64, 1);
    if (count >= 0 && view.dim(0) != count)
      fail(where, {.what = fmt::format("{} has another length", name),
                   .got = std::to_string(view.dim(0)),
                   .expected = std::to_string(count)});
    std::vector<int64_t> values(static_cast<size_t>(view.dim(0)));
    if (!values.empty()) std::memcpy(values.data(), view.data, static_cast<size_t>(view.bytes()));
    return values;
  }
};

void limit(const std::string& where, const char* what, int64_t n, int64_t most) {
  if (n > most)
    fail(where, {.what = fmt::format("has too many {}", what),
                 .got = std::to_string(n),
                 .expected = fmt::format("at most {}", most)});
}

// Before anything is copied: what a 32-bit number cannot address is refused by its shape.
int64_t length_of(const Tensors& tensors, const char* name, const char* what, int64_t most) {
  const int64_t n = tensors.need(name, DType::i64, 1).dim(0);
  limit(tensors.where, what, n, most);
  return n;
}

bool has_classes_of_graphs(const Tensors& tensors) {
  const View *batch = tensors.find("batch"), *y = tensors.find("y");
  return batch && y && batch->shape.count() != y->shape.count();
}

// What was made for another task, before its tensors are read as if they were for this one.
void check_task(const Tensors& tensors, Task task) {
  if (task != Task::edge && tensors.find("x_dst"))
    fail(tensors.where, {.what = "has nodes of two types, with edges to predict", .hint = "graph.task = \"edge\""});
  if (task == Task::node && has_classes_of_graphs(tensors))
    fail(tensors.where,
         {.what = "has a class for each of its graphs, none for nodes", .hint = "graph.task = \"graph\""});
  if (task == Task::graph && !tensors.find("batch") && tensors.find("rowptr"))
    fail(tensors.where, {.what = "is one graph: it has no tensor batch", .hint = "graph.task = \"node\", or \"edge\""});
}

// `sources`: of a graph with two types of nodes; 0: there is one.
Csr read_csr(const Tensors& tensors, int64_t sources) {
  const int64_t nodes = length_of(tensors, "rowptr", "nodes", kMost) - 1;
  if (nodes < 1)
    fail(tensors.where, {.what = "is a graph without nodes", .expected = "rowptr with an entry more than nodes"});
  length_of(tensors, "col", "edges", kMost);
  Csr csr{.rows = nodes, .cols = sources > 0 ? sources : nodes, .rowptr = tensors.integers("rowptr")};
  for (const int64_t c : tensors.integers("col")) csr.col.push_back(c < 0 || c > kMost ? -1 : static_cast<int32_t>(c));
  if (tensors.find("edge_weight")) {
    const View weight = tensors.need("edge_weight", DType::f32, 1);
    if (weight.dim(0) != csr.edges())
      fail(tensors.where, {.what = "edge_weight has another length",
                           .got = std::to_string(weight.dim(0)),
                           .expected = fmt::format("{}, as col", csr.edges())});
    csr.weight.resize(csr.col.size());
    if (!csr.weight.empty()) std::memcpy(csr.weight.data(), weight.data, static_cast<size_t>(weight.bytes()));
  }
  check(csr, tensors.where);
  return csr;
}

// [rows, width] F32, all finite; returns the width.
int64_t read_features(const Tensors& tensors, const char* name, int64_t rows, std::vector<float>& values) {
  const View x = tensors.need(name, DType::f32, 2);
  if (x.dim(0) != rows || x.dim(1) == 0)
    fail(tensors.where, {.what = fmt::format("{} has another shape", name),
                         .got = to_string(x.shape),
                         .expected = fmt::format("[{}, features]", rows)});
  values.resize(static_cast<size_t>(x.count()));
  std::memcpy(values.data(), x.data, static_cast<size_t>(x.bytes()));
  check_features(values, x.dim(1), tensors.where);
  return x.dim(1);
}

// Of `count` nodes or graphs, as `each` says.
void read_classes(const Tensors& tensors, const char* each, int64_t count, int64_t classes, GraphData& data) {
  int64_t known = 0, trained = 0;
  const bool runs = classes > 0, none = runs && !tensors.find("y");
  for (const int64_t y : none ? std::vector<int64_t>(static_cast<size_t>(count), -1) : tensors.integers("y", count)) {
    if (y < -1)
      fail(tensors.where, {.what = fmt::format("y of {} {} is not a class", each, std::ssize(data.y)),
                           .got = std::to_string(y),
                           .expected = "from 0, or -1 for unknown"});
    limit(tensors.where, "classes", y, (runs ? classes : kMostClasses) - 1);
    data.y.push_back(static_cast<int32_t>(y));
    data.classes = std::max(data.classes, y + 1);
    known += y >= 0 ? 1 : 0;
  }
  if (runs) data.classes = classes;
  if (known == 0 && !runs)
    fail(tensors.where, {.what = fmt::format("has no {} of a known class", each), .expected = "some y from 0"});
  const auto mask = tensors.find("train") ? tensors.integers("train", count) : std::vector<int64_t>();
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    if (!mask.empty() && mask[i] != 0 && mask[i] != 1)
      fail(tensors.where, {.what = fmt::format("train of {} {} is not a flag", each, i),
                           .got = std::to_string(mask[i]),
                           .expected = "0 or 1"});
    data.train.push_back((mask.empty() || mask[i] == 1) && data.y[i] >= 0 ? 1 : 0);
    trained += data.train.back();
  }
  if (runs) return;
  if (trained == 0)
    fail(tensors.where,
         {.what = "has nothing to train on", .expected = fmt::format("{}s with train = 1 and a known class", each)});
  std::vector<int64_t> members(static_cast<size_t>(data.classes));
  for (size_t i = 0; i < data.y.size(); ++i) {
    if (data.train[i]) ++members[static_cast<size_t>(data.y[i])];
  }
  const auto missing = std::count(members.begin(), members.end(), 0);
  if (missing > 0)
    data.notes.push_back(fmt::format("{} of {} classes have no {} to train on", missing, data.classes, each));
}

// Where each graph begins; their number is that of y, or without it that of the last node.
void read_graphs(const Tensors& tensors, bool runs, GraphData& data) {
  const int64_t nodes = data.graph.rows();
  const std::vector<int64_t> batch = tensors.integers("batch", nodes);
  const bool counts = runs && !tensors.find("y");  // numbers ascend from node to node
  const int64_t graphs =
      counts ? std::clamp<int64_t>(batch.back() + 1, 1, nodes) : length_of(tensors, "y", "graphs", kMost);
  int64_t last = 0;
  for (int64_t i = 0; i < nodes; ++i) {
    const int64_t graph = batch[static_cast<size_t>(i)];
    if (graph < last || graph >= graphs)
      fail(tensors.where, {.what = fmt::format("batch of node {} is not the number of a graph, ascending", i),
                           .got = std::to_string(graph),
                           .expected = fmt::format("{} to {}", last, graphs - 1)});
    last = graph;
  }
  for (int64_t g = 0, node = 0; g <= graphs; ++g) {
    while (node < nodes && batch[static_cast<size_t>(node)] < g) ++node;
    data.begin.push_back(node);
  }
  const Csr& in = data.graph.in;
  for (int64_t i = 0; i < nodes; ++i) {
    for (int64_t e = in.rowptr[static_cast<size_t>(i)]; e < in.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const int32_t from = in.col[static_cast<size_t>(e)];
      const int64_t own = batch[static_cast<size_t>(i)], other = batch[static_cast<size_t>(from)];
      if (own != other)
        fail(tensors.where, {.what = fmt::format("the edge from node {} to {} leaves its graph", from, i),
                             .got = fmt::format("graphs {} and {}", other, own),
                             .expected = "one graph"});
    }
  }
}

// There is nothing to tell them by.
void drop_empty_graphs(GraphData& data) {
  int64_t dropped = 0;
  for (size_t g = 0; g < data.y.size(); ++g) {
    if (data.begin[g + 1] > data.begin[g]) continue;
    data.y[g] = -1;
    data.train[g] = 0;
    ++dropped;
  }
  if (dropped > 0)
    data.notes.push_back(dropped == 1 ? "1 graph has no nodes and is left out"
                                      : fmt::format("{} graphs have no nodes and are left out", dropped));
}

}  // namespace

void check_features(std::span<const float> x, int64_t width, std::string_view where) {
  const auto bad = std::find_if(x.begin(), x.end(), [](float v) { return !std::isfinite(v); });
  if (bad == x.end()) return;
  const int64_t at = bad - x.begin();
  fail(where, {.what = fmt::format("feature {} of node {} is not finite", at % width, at / width),
               .got = fmt::format("{}", *bad)});
}

GraphData graph_of(const std::vector<io::StoredTensor>& list, const std::string& where, Task task, int64_t classes) {
  const Tensors tensors{list, where};
  check_task(tensors, task);
  const bool bipartite = task == Task::edge && tensors.find("x_dst");
  int64_t sources = 0;
  if (bipartite) {
    sources = tensors.need("x", DType::f32, 2).dim(0);
    limit(where, "nodes", sources, kMost);
    if (sources == 0) fail(where, {.what = "x has no rows", .expected = "a node that sends"});
  }
  Csr csr = read_csr(tensors, sources);
  const int64_t loops = bipartite ? 0 : remove_self_loops(csr);
  GraphData data{.graph = make_graph(std::move(csr))};
  if (loops > 0 && !data.graph.in.loop.empty())
    data.notes.push_back(
        loops == 1
            ? "1 self-loop of the file is no edge: gcn takes its weight in place of 1"
            : fmt::format("{} self-loops of the file are no edges: gcn takes their weights in place of 1", loops));
  if (loops > 0 && data.graph.in.loop.empty())
    data.notes.push_back(
        fmt::format("{} left out: gcn and gat add one to every node, others none",
                    loops == 1 ? "1 self-loop of the file is" : fmt::format("{} self-loops of the file are", loops)));
  if (data.graph.edges() == 0) data.notes.emplace_back("the graph has no edges: every node is on its own");
  data.features = read_features(tensors, "x", data.graph.cols(), data.x);
  if (bipartite) data.features_dst = read_features(tensors, "x_dst", data.graph.rows(), data.x_dst);
  if (task == Task::graph) read_graphs(tensors, classes > 0, data);
  if (task == Task::node) read_classes(tensors, "node", data.graph.rows(), classes, data);
  if (task == Task::graph) {
    read_classes(tensors, "graph", std::ssize(data.begin) - 1, classes, data);
    drop_empty_graphs(data);
    if (classes == 0 && std::count(data.train.begin(), data.train.end(), 1) == 0)
      fail(where, {.what = "has nothing to train on", .expected = "a graph with nodes, train = 1 and a known class"});
  }
  return data;
}

GraphNumbers numbers_of(const std::vector<io::StoredTensor>& list, const std::string& where) {
  const Tensors tensors{list, where};
  constexpr const char* kDivided = "one graph, with classes of its nodes";  // by a grid (train/grid_nodes.h)
  if (tensors.find("x_dst"))
    fail(where, {.what = "has nodes of two types, which no grid of ranks divides", .expected = kDivided});
  if (has_classes_of_graphs(tensors))
    fail(where, {.what = "has a class for each of its graphs, which no grid of ranks divides", .expected = kDivided});
  Csr csr = read_csr(tensors, 0);
  remove_self_loops(csr);
  GraphNumbers numbers{.nodes = csr.rows, .edges = csr.edges()};
  if (tensors.find("x")) numbers.features = tensors.need("x", DType::f32, 2).dim(1);
  if (tensors.find("y")) {
    for (const int64_t y : tensors.integers("y")) {
      limit(where, "classes", y, kMostClasses - 1);
      numbers.classes = std::max(numbers.classes, y + 1);
    }
  }
  return numbers;
}

GraphNumbers read_numbers(const std::filesystem::path& path) {
  const sys::MappedFile file(path);
  const std::string where = printable(path.string());
  return numbers_of(io::parse_safetensors(file.bytes(), where), where);
}

GraphData read_graph(const std::filesystem::path& path, Task task, int64_t classes) {
  const sys::MappedFile file(path);
  const std::string where = printable(path.string());
  return graph_of(io::parse_safetensors(file.bytes(), where), where, task, classes);
}

}  // namespace braid::graph
