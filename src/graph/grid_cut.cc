#include "graph/grid_cut.h"

#include <algorithm>
#include <utility>

#include "core/philox.h"
#include "sys/check.h"

namespace braid::graph {

std::vector<int32_t> random_order(int64_t nodes, uint64_t seed) {
  constexpr uint32_t kOrder = 0x706c6578;  // "plex": no other draws share this stream
  std::vector<std::pair<uint64_t, int32_t>> keys;
  keys.reserve(static_cast<size_t>(nodes));
  for (int64_t i = 0; i < nodes; ++i) {
    const auto r = philox({.seed = seed, .stream = kOrder}, static_cast<uint64_t>(i));
    keys.emplace_back(uint64_t{r[0]} << 32 | r[1], static_cast<int32_t>(i));
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int32_t> order;
  order.reserve(keys.size());
  for (const auto& [key, node] : keys) order.push_back(node);
  return order;
}

std::vector<int32_t> positions_of(std::span<const int32_t> order) {
  std::vector<int32_t> positions(order.size());
  for (size_t i = 0; i < order.size(); ++i) positions[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  return positions;
}

Csr block_of(const Csr& csr, std::span<const int32_t> order, const Range& rows, const Range& cols) {
  CHECK(std::ssize(order) == csr.rows && csr.rows == csr.cols, "{} nodes in order of {} x {}", order.size(), csr.rows,
        csr.cols);
  const std::vector<int32_t> positions = positions_of(order);
  Csr block{.rows = rows.count, .cols = cols.count};
  block.rowptr.reserve(static_cast<size_t>(rows.count + 1));
  for (int64_t i = rows.begin; i < rows.begin + rows.count; ++i) {
    const auto node = static_cast<size_t>(order[static_cast<size_t>(i)]);
    const auto first = std::ssize(block.col);
    for (int64_t e = csr.rowptr[node]; e < csr.rowptr[node + 1]; ++e) {
      const int64_t source = positions[static_cast<size_t>(csr.col[static_cast<size_t>(e)])] - cols.begin;
      if (source < 0 || source >= cols.count) continue;
      block.col.push_back(static_cast<int32_t>(source));
      if (!csr.weight.empty()) block.weight.push_back(csr.weight_of(e));
    }
    sort_last_row(block, first);
    block.rowptr.push_back(std::ssize(block.col));
  }
  return block;
}

double imbalance(const Csr& csr, std::span<const int32_t> positions, int64_t rows, int64_t cols) {
  if (csr.edges() == 0) return 1;
  // The part that has a position, as share_of divides.
  const auto parts_of = [](int64_t extent, int64_t parts) {
    std::vector<int32_t> part(static_cast<size_t>(extent));
    for (int64_t p = 0; p < parts; ++p) {
      const Range own = share_of(extent, p, parts);
      std::fill_n(part.begin() + own.begin, own.count, static_cast<int32_t>(p));
    }
    return part;
  };
  const std::vector<int32_t> row_part = parts_of(csr.rows, rows), col_part = parts_of(csr.cols, cols);
  const auto position = [&](size_t node) { return positions.empty() ? node : static_cast<size_t>(positions[node]); };
  std::vector<int64_t> edges(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < static_cast<size_t>(csr.rows); ++i) {
    const int64_t first = row_part[position(i)] * cols;
    for (int64_t e = csr.rowptr[i]; e < csr.rowptr[i + 1]; ++e)
      ++edges[static_cast<size_t>(first + col_part[position(static_cast<size_t>(csr.col[static_cast<size_t>(e)]))])];
  }
  const int64_t most = *std::max_element(edges.begin(), edges.end());
  return static_cast<double>(most) * static_cast<double>(edges.size()) / static_cast<double>(csr.edges());
}

}  // namespace braid::graph
