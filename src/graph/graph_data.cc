#include "graph/graph_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::graph {
namespace {

// The largest class: the width of the last layer.
constexpr int64_t kMostClasses = 1 << 20;

struct Tensors {
  const std::vector<io::StoredTensor>& list;
  const std::string& where;

  const View* find(std::string_view name) const {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& t) { return t.name == name; });
    return found == list.end() ? nullptr : &found->view;
  }
  View need(std::string_view name, DType dtype, int rank) const {
    const View* view = find(name);
    if (!view) fail(where, {.what = fmt::format("has no tensor {}", name), .expected = "rowptr, col, x and y"});
    if (view->dtype != dtype || view->shape.rank != rank)
      fail(where, {.what = fmt::format("{} has another type or shape", name),
                   .got = fmt::format("{} {}", name_of(view->dtype), to_string(view->shape)),
                   .expected = fmt::format("{} with {} dimension{}", name_of(dtype), rank, rank == 1 ? "" : "s")});
    return *view;
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

Csr read_csr(const Tensors& tensors) {
  const int64_t nodes = length_of(tensors, "rowptr", "nodes", kMost) - 1;
  if (nodes < 1)
    fail(tensors.where, {.what = "is a graph without nodes", .expected = "rowptr with an entry more than nodes"});
  length_of(tensors, "col", "edges", kMost);
  Csr csr{.rows = nodes, .cols = nodes, .rowptr = tensors.integers("rowptr")};
  for (const int64_t c : tensors.integers("col")) csr.col.push_back(c < 0 || c > kMost ? -1 : static_cast<int32_t>(c));
  check(csr, tensors.where);
  return csr;
}

void read_features(const Tensors& tensors, GraphData& data) {
  const View x = tensors.need("x", DType::f32, 2);
  const int64_t nodes = data.graph.rows();
  if (x.dim(0) != nodes || x.dim(1) == 0)
    fail(tensors.where,
         {.what = "x has another shape", .got = to_string(x.shape), .expected = fmt::format("[{}, features]", nodes)});
  data.features = x.dim(1);
  data.x.resize(static_cast<size_t>(x.count()));
  std::memcpy(data.x.data(), x.data, static_cast<size_t>(x.bytes()));
  const auto bad = std::find_if(data.x.begin(), data.x.end(), [](float v) { return !std::isfinite(v); });
  if (bad == data.x.end()) return;
  const int64_t at = bad - data.x.begin();
  fail(tensors.where,
       {.what = fmt::format("feature {} of node {} is not finite", at % data.features, at / data.features),
        .got = fmt::format("{}", *bad)});
}

void read_classes(const Tensors& tensors, GraphData& data) {
  const int64_t nodes = data.graph.rows();
  int64_t known = 0, trained = 0;
  for (const int64_t y : tensors.integers("y", nodes)) {
    if (y < -1)
      fail(tensors.where, {.what = fmt::format("y of node {} is not a class", std::ssize(data.y)),
                           .got = std::to_string(y),
                           .expected = "from 0, or -1 for unknown"});
    limit(tensors.where, "classes", y, kMostClasses - 1);
    data.y.push_back(static_cast<int32_t>(y));
    data.classes = std::max(data.classes, y + 1);
    known += y >= 0 ? 1 : 0;
  }
  if (known == 0) fail(tensors.where, {.what = "has no node of a known class", .expected = "some y from 0"});
  const auto mask = tensors.find("train") ? tensors.integers("train", nodes) : std::vector<int64_t>();
  for (size_t i = 0; i < static_cast<size_t>(nodes); ++i) {
    if (!mask.empty() && mask[i] != 0 && mask[i] != 1)
      fail(tensors.where, {.what = fmt::format("train of node {} is not a flag", i),
                           .got = std::to_string(mask[i]),
                           .expected = "0 or 1"});
    data.train.push_back((mask.empty() || mask[i] == 1) && data.y[i] >= 0 ? 1 : 0);
    trained += data.train.back();
  }
  if (trained == 0)
    fail(tensors.where, {.what = "has nothing to train on", .expected = "nodes with train = 1 and a known class"});
  std::vector<int64_t> members(static_cast<size_t>(data.classes));
  for (size_t i = 0; i < data.y.size(); ++i) {
    if (data.train[i]) ++members[static_cast<size_t>(data.y[i])];
  }
  const auto missing = std::count(members.begin(), members.end(), 0);
  if (missing > 0)
    data.notes.push_back(fmt::format("{} of {} classes have no node to train on", missing, data.classes));
}

}  // namespace

GraphData graph_of(const std::vector<io::StoredTensor>& list, const std::string& where) {
  const Tensors tensors{list, where};
  Csr csr = read_csr(tensors);
  const int64_t loops = remove_self_loops(csr);
  GraphData data{.graph = make_graph(std::move(csr))};
  if (loops > 0)
    data.notes.push_back(fmt::format("{} self-loops of the file are left out: layers add their own", loops));
  if (data.graph.edges() == 0) data.notes.emplace_back("the graph has no edges: every node is on its own");
  read_features(tensors, data);
  read_classes(tensors, data);
  return data;
}

GraphData read_graph(const std::filesystem::path& path) {
  const sys::MappedFile file(path);
  const std::string where = printable(path.string());
  return graph_of(io::parse_safetensors(file.bytes(), where), where);
}

}  // namespace braid::graph
