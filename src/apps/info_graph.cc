// What braid info says of graph networks and of files with graphs (eval_graph.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "apps/eval_graph.h"
#include "graph/graph_data.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "sys/error.h"
#include "train/graph_weights.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

ordered_json describe_network(const fs::path& folder) {
  const io::Json config = io::Json::read(folder / "config.json");
  ordered_json j = {{"kind", "graph network"}, {"name", folder.lexically_normal().filename().string()}};
  for (const char* key : {"model", "task", "readout", "aggregate"}) {
    if (const auto value = config.string_of({key}); value && !value->empty()) j[key] = *value;
  }
  if (j["task"] != "graph") j.erase("readout");
  for (const char* key : {"layers", "features", "hidden", "classes", "heads", "kernels"}) {
    if (const auto value = config.int_of({key})) j[key] = *value;
  }
  if (j["task"] == "edge") j.erase("classes");
  if (j["model"] != "gat") j.erase("heads");
  if (j["model"] != "monet") j.erase("kernels");
  int64_t parameters = 0;
  ordered_json tensors = ordered_json::array();
  const io::Safetensors file(train::GraphWeights::file_in(folder));
  for (const io::StoredTensor& t : file.tensors()) {
    if (t.name.ends_with(".eps")) continue;  // not trained
    parameters += t.view.count();
    tensors.push_back({{"name", t.name}, {"shape", to_string(t.view.shape)}});
  }
  j["parameters"] = parameters;
  j["tensors"] = tensors;
  return j;
}

// A column of integers, copied: a file may hold it at any address.
std::vector<int64_t> integers(const io::Safetensors& file, const char* name) {
  const View* view = file.find(name);
  if (!view || view->dtype != DType::i64 || view->shape.rank != 1) return {};
  std::vector<int64_t> values(static_cast<size_t>(view->dim(0)));
  if (!values.empty()) std::memcpy(values.data(), view->data, static_cast<size_t>(view->bytes()));
  return values;
}

ordered_json describe_file(const fs::path& path, const io::Safetensors& file) {
  const std::vector<int64_t> rowptr = integers(file, "rowptr");
  const View col = file.need("col");
  if (rowptr.size() < 2) fail(printable(path.string()), {.what = "is a graph without nodes"});
  int64_t most = 0, alone = 0;
  for (size_t i = 1; i < rowptr.size(); ++i) {
    most = std::max(most, rowptr[i] - rowptr[i - 1]);
    alone += rowptr[i] == rowptr[i - 1] ? 1 : 0;
  }
  const std::vector<int64_t> y = integers(file, "y"), train = integers(file, "train");
  const View *x = file.find("x"), *x_dst = file.find("x_dst");
  const bool graphs = file.find("batch") != nullptr;
  const auto nodes = std::ssize(rowptr) - 1;
  ordered_json j = {{"kind", "graph"},
                    {"name", path.filename().string()},
                    {"nodes", nodes},
                    {"edges", col.dim(0)},
                    {"degree_max", most},
                    {"degree_mean", static_cast<double>(col.dim(0)) / static_cast<double>(nodes)},
                    {"nodes_without_edges", alone},
                    {"weighted", file.find("edge_weight") != nullptr}};
  if (x && x->shape.rank == 2) j["features"] = x->dim(1);
  if (x && x_dst && x->shape.rank == 2 && x_dst->shape.rank == 2) {
    j["sources"] = x->dim(0);
    j["features_dst"] = x_dst->dim(1);
  }
  if (graphs) {
    const std::vector<int64_t> batch = integers(file, "batch");
    j["graphs"] = batch.empty() ? 0 : *std::ranges::max_element(batch) + 1;
  }
  if (!y.empty()) {
    const auto known = std::ssize(y) - std::count(y.begin(), y.end(), -1);
    j["classes"] = *std::max_element(y.begin(), y.end()) + 1;
    j["known"] = known;
    j["trained"] = train.empty() ? known : std::count(train.begin(), train.end(), 1);
  }
  j["tasks"] = graphs ? "graph" : x_dst ? "edge" : y.empty() ? (x ? "edge" : "none, without features") : "node, edge";
  return j;
}

}  // namespace

std::optional<ordered_json> describe_graph(const fs::path& path) {
  std::error_code none;
  if (fs::is_directory(path, none)) {
    if (!holds_graph_network(path)) return std::nullopt;
    return describe_network(path);
  }
  if (path.extension() != ".safetensors" || !fs::is_regular_file(path, none)) return std::nullopt;
  const io::Safetensors file(path);
  if (!file.find("rowptr") || !file.find("col")) return std::nullopt;
  return describe_file(path, file);
}

std::string text_of_graph(const ordered_json& j) {
  const auto number = [&](const char* key) { return j[key].get<int64_t>(); };
  const auto word = [&](const char* key) { return printable(j[key].get<std::string>()); };
  if (j["kind"] == "graph network") {
    std::string text = fmt::format("{}  {} of graphs, task {}\n", word("name"), word("model"), word("task"));
    for (const char* key : {"layers", "features", "hidden", "classes", "heads", "kernels", "parameters"}) {
      if (j.contains(key)) text += fmt::format("{:<11} {}\n", key, number(key));
    }
    for (const char* key : {"aggregate", "readout"}) {
      if (j.contains(key)) text += fmt::format("{:<11} {}\n", key, word(key));
    }
    for (const ordered_json& t : j["tensors"])
      text += fmt::format("  {:<16} {}\n", printable(t["name"].get<std::string>()), t["shape"].get<std::string>());
    return text;
  }
  std::string text = fmt::format(
      "{}  a graph, for graph.task {}\n{:<11} {}\n{:<11} {}{}\n{:<11} up to {}, mean {:.1f}, {} nodes without\n",
      word("name"), word("tasks"), "nodes", number("nodes"), "edges", number("edges"),
      j["weighted"].get<bool>() ? ", with weights" : "", "degrees", number("degree_max"),
      j["degree_mean"].get<double>(), number("nodes_without_edges"));
  for (const char* key : {"sources", "features", "features_dst", "graphs"}) {
    if (j.contains(key)) text += fmt::format("{:<11} {}\n", key, number(key));
  }
  if (j.contains("classes"))
    text += fmt::format("{:<11} {}, {} known, {} to train on\n", "classes", number("classes"), number("known"),
                        number("trained"));
  return text;
}

}  // namespace braid::apps
