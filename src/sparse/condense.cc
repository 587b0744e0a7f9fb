#include "sparse/condense.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace braid::sparse {

Condensed condensed(const graph::Csr& csr) {
  constexpr int64_t kRows = 16, kCols = 8;
  Condensed c;
  std::vector<int32_t> sources;
  for (int64_t row = 0; row < csr.rows; row += kRows) {
    const int64_t begin = csr.rowptr[static_cast<size_t>(row)],
                  end = csr.rowptr[static_cast<size_t>(std::min(row + kRows, csr.rows))];
    sources.assign(csr.col.begin() + begin, csr.col.begin() + end);
    std::sort(sources.begin(), sources.end());
    const int64_t distinct = std::unique(sources.begin(), sources.end()) - sources.begin();
    c.tiles += (distinct + kCols - 1) / kCols;
  }
  if (c.tiles == 0) return c;
  c.reuse = static_cast<double>(csr.edges()) / static_cast<double>(kCols * c.tiles);
  c.density = c.reuse / kRows;
  return c;
}

std::string describe(const Condensed& tiles) {
  return fmt::format("as dense tiles of 16 x 8 {:.1f}% full, {:.2f} edges share a fetched row ({:.0f} would pay)",
                     100 * tiles.density, tiles.reuse, Condensed::kLeastReuse);
}

}  // namespace braid::sparse
