#include "graph/graph_write.h"

#include <span>
#include <vector>

#include "io/safetensors_write.h"

namespace braid::graph {

void write_graph(const std::filesystem::path& path, const GraphData& data) {
  const Csr& csr = data.graph.in;
  const auto n = csr.rows;
  std::vector<io::TensorSpec> specs = {{"rowptr", DType::i64, {n + 1}}, {"col", DType::i64, {csr.edges()}}};
  if (!data.y.empty()) specs.push_back({"y", DType::i64, {n}}), specs.push_back({"train", DType::i64, {n}});
  if (!data.x.empty()) specs.push_back({"x", DType::f32, {n, data.features}});
  io::SafetensorsWriter file(path, specs);
  const auto integers = [&](const char* name, const auto& values) {
    const std::vector<int64_t> wide(values.begin(), values.end());
    file.write(name, std::as_bytes(std::span(wide)));
  };
  for (const io::TensorSpec& spec : file.order()) {
    if (spec.name == "x") file.write("x", view_of(data.x.data(), {n, data.features}));
    if (spec.name == "rowptr") integers("rowptr", csr.rowptr);
    if (spec.name == "col") integers("col", csr.col);
    if (spec.name == "y") integers("y", data.y);
    if (spec.name == "train") integers("train", data.train);
  }
  file.finish();
}

}  // namespace braid::graph
