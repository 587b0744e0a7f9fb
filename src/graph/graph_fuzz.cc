// Any bytes are a graph in text or in safetensors, or give an Error; the rows of an accepted one are sound.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph_data.h"
#include "graph/graph_numbers.h"
#include "graph/read_text.h"
#include "sys/check.h"
#include "sys/error.h"

namespace {

using namespace braid;

void expect_sound(const graph::Csr& csr) {
  try {
    graph::check(csr, "input");
  } catch (const Error& error) {
    CHECK(false, "{}", error.what());
  }
}

// What a task accepts is sound; what it refuses, another may accept.
void expect_read(const std::vector<io::StoredTensor>& tensors, graph::Task task) {
  try {
    const graph::GraphData read = graph::graph_of(tensors, "input", task);
    expect_sound(read.graph.in);
    expect_sound(read.graph.out);
    CHECK(std::ssize(read.x) == read.nodes() * read.features, "{} features", read.x.size());
    CHECK(std::ssize(read.x_dst) == (read.bipartite() ? read.graph.rows() * read.features_dst : 0), "{} of receivers",
          read.x_dst.size());
    CHECK(read.begin.empty() || (read.begin.back() == read.graph.rows() && std::ranges::is_sorted(read.begin)),
          "{} graphs", read.begin.size());
  } catch (const Error&) {
  }
}

void expect_numbers(const std::vector<io::StoredTensor>& tensors) {
  try {
    const graph::GraphNumbers read = graph::numbers_of(tensors, "input");
    CHECK(read.nodes > 0 && read.edges >= 0 && read.classes >= 0, "{} nodes", read.nodes);
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (graph::is_matrix_market(text)) {
      expect_sound(graph::parse_matrix_market(text, "input").csr);
    } else if (size > 8 && data[7] == 0) {  // the length of a header below 2^56
      const auto tensors = io::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
      for (const graph::Task task : {graph::Task::node, graph::Task::edge, graph::Task::graph})
        expect_read(tensors, task);
      expect_numbers(tensors);
    } else {
      expect_sound(graph::parse_edge_list(text, "input", size % 2 == 0).csr);
    }
  } catch (const Error&) {
  }
  return 0;
}
