#include "graph/graph_write.h"

#include <span>
#include <vector>

#include "io/safetensors_write.h"

namespace braid::graph {

namespace {

// Self-loops that weigh other than 1 are edges in a file.
Csr with_loops(const Csr& in) {
  Csr all{.rows = in.rows, .cols = in.cols};
  for (int64_t i = 0; i < in.rows; ++i) {
    const int64_t begin = all.edges();
    for (int64_t e = in.rowptr[static_cast<size_t>(i)]; e < in.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      all.col.push_back(in.col[static_cast<size_t>(e)]);
      all.weight.push_back(in.weight_of(e));
    }
    if (in.loop_of(i) != 1) {
      all.col.push_back(static_cast<int32_t>(i));
      all.weight.push_back(in.loop_of(i));
    }
    sort_last_row(all, begin);
    all.rowptr.push_back(all.edges());
  }
  return all;
}

}  // namespace

void write_graph(const std::filesystem::path& path, const GraphData& data) {
  const Csr looped = data.graph.in.loop.empty() ? Csr() : with_loops(data.graph.in);
  const Csr& csr = data.graph.in.loop.empty() ? data.graph.in : looped;
  const auto n = csr.rows;
  if (!data.x.empty()) check_features(data.x, data.features, "features");
  std::vector<io::TensorSpec> specs = {{"rowptr", DType::i64, {n + 1}}, {"col", DType::i64, {csr.edges()}}};
  if (!csr.weight.empty()) specs.push_back({"edge_weight", DType::f32, {csr.edges()}});
  if (!data.y.empty()) {
    const int64_t count = std::ssize(data.y);
    specs.push_back({"y", DType::i64, {count}});
    specs.push_back({"train", DType::i64, {count}});
  }
  if (!data.x.empty()) specs.push_back({"x", DType::f32, {csr.cols, data.features}});
  if (!data.x_dst.empty()) specs.push_back({"x_dst", DType::f32, {n, data.features_dst}});
  std::vector<int64_t> batch;
  for (size_t g = 0; g + 1 < data.begin.size(); ++g)
    batch.insert(batch.end(), static_cast<size_t>(data.begin[g + 1] - data.begin[g]), static_cast<int64_t>(g));
  if (!batch.empty()) specs.push_back({"batch", DType::i64, {n}});
  io::SafetensorsWriter file(path, specs);
  const auto integers = [&](const char* name, const auto& values) {
    const std::vector<int64_t> wide(values.begin(), values.end());
    file.write(name, std::as_bytes(std::span(wide)));
  };
  for (const io::TensorSpec& spec : file.order()) {
    if (spec.name == "x") file.write("x", view_of(data.x.data(), {csr.cols, data.features}));
    if (spec.name == "edge_weight") file.write("edge_weight", view_of(csr.weight.data(), {csr.edges()}));
    if (spec.name == "x_dst") file.write("x_dst", view_of(data.x_dst.data(), {n, data.features_dst}));
    if (spec.name == "batch") integers("batch", batch);
    if (spec.name == "rowptr") integers("rowptr", csr.rowptr);
    if (spec.name == "col") integers("col", csr.col);
    if (spec.name == "y") integers("y", data.y);
    if (spec.name == "train") integers("train", data.train);
  }
  file.finish();
}

}  // namespace braid::graph
