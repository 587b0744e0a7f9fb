#include "graph/sample.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/philox.h"

namespace braid::graph {
namespace {

constexpr uint32_t kStream = 0x73616d70;  // "samp": no generator draws with it

// The edges of a row that are drawn.
void draw_edges(const Csr& in, int64_t row, int64_t most, const SampleKey& key, uint32_t layer,
                std::vector<std::pair<uint64_t, int64_t>>& out) {
  out.clear();
  for (int64_t e = in.rowptr[static_cast<size_t>(row)]; e < in.rowptr[static_cast<size_t>(row) + 1]; ++e) {
    const auto r = philox({key.seed, kStream + layer}, static_cast<uint64_t>(e), static_cast<uint32_t>(key.step));
    out.emplace_back(static_cast<uint64_t>(r[0]) << 32 | r[1], e);
  }
  if (std::ssize(out) <= most) return;
  std::nth_element(out.begin(), out.begin() + most, out.end());
  out.resize(static_cast<size_t>(most));
}

}  // namespace

Sample sample_neighbours(const Csr& in, std::span<const int32_t> seeds, int64_t layers, int64_t most,
                         const SampleKey& key) {
  Sample sample;
  sample.nodes.assign(seeds.begin(), seeds.end());
  std::unordered_map<int32_t, int32_t> number;  // of a node in the block
  for (const int32_t node : seeds) number.emplace(node, static_cast<int32_t>(number.size()));
  std::vector<std::pair<uint64_t, int64_t>> drawn;
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    Csr block{.rows = std::ssize(sample.nodes)};
    for (int64_t i = 0; i < block.rows; ++i) {
      draw_edges(in, sample.nodes[static_cast<size_t>(i)], most, key, static_cast<uint32_t>(layer), drawn);
      for (const auto& [random, e] : drawn) {
        const int32_t node = in.col[static_cast<size_t>(e)];
        const auto [at, added] = number.emplace(node, static_cast<int32_t>(number.size()));
        if (added) sample.nodes.push_back(node);
        block.col.push_back(at->second);
        if (!in.weight.empty()) block.weight.push_back(in.weight_of(e));
      }
      sort_last_row(block, block.rowptr.back());
      block.rowptr.push_back(block.edges());
    }
    block.cols = std::ssize(sample.nodes);
    sample.blocks.push_back(make_graph(std::move(block)));
  }
  std::reverse(sample.blocks.begin(), sample.blocks.end());
  return sample;
}

}  // namespace braid::graph
