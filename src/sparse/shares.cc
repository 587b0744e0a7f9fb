#include "sparse/shares.h"

#include <algorithm>

namespace braid::sparse {
namespace {

// Edges [begin, end), which are of rows [first, last).
graph::Csr part_of(const graph::Csr& csr, int64_t first, int64_t last, int64_t begin, int64_t end) {
  graph::Csr part{.rows = last - first, .cols = csr.cols};
  for (int64_t i = first; i < last; ++i)
    part.rowptr.push_back(std::clamp(csr.rowptr[static_cast<size_t>(i) + 1], begin, end) - begin);
  part.col.assign(csr.col.begin() + begin, csr.col.begin() + end);
  if (!csr.weight.empty()) part.weight.assign(csr.weight.begin() + begin, csr.weight.begin() + end);
  return part;
}

}  // namespace

std::vector<graph::Csr> shares_of(const graph::Csr& csr, int64_t count, Balance balance) {
  std::vector<graph::Csr> shares;
  for (int64_t k = 0; k < count; ++k) {
    if (balance == Balance::rows) {
      const int64_t first = csr.rows * k / count, last = csr.rows * (k + 1) / count;
      shares.push_back(
          part_of(csr, first, last, csr.rowptr[static_cast<size_t>(first)], csr.rowptr[static_cast<size_t>(last)]));
      continue;
    }
    const int64_t begin = csr.edges() * k / count, end = csr.edges() * (k + 1) / count;
    // The rows of the first and the last edge; rows without edges belong to the share before them.
    const auto row_of = [&](int64_t edge) {
      return std::upper_bound(csr.rowptr.begin(), csr.rowptr.end(), edge) - csr.rowptr.begin() - 1;
    };
    const int64_t first = k == 0 ? 0 : row_of(begin), last = k + 1 == count ? csr.rows : row_of(end - 1) + 1;
    shares.push_back(part_of(csr, first, std::max(first, last), begin, end));
  }
  return shares;
}

}  // namespace braid::sparse
