// The formulas of embedding.h, for double and complex<double>.
#pragma once
#include <cstdint>
#include <vector>

namespace braid {

// table [V, D] -> y [T, D]
template <class Num>
void embedding_fwd_ref(int64_t width, const std::vector<int64_t>& ids, const std::vector<Num>& table,
                       std::vector<Num>& y) {
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t d = 0; d < width; ++d)
      y[t * static_cast<size_t>(width) + static_cast<size_t>(d)] = table[static_cast<size_t>(ids[t] * width + d)];
  }
}

// dy [T, D] -> dtable [V, D], added to what is there
inline void embedding_bwd_ref(int64_t width, int64_t padding, const std::vector<int64_t>& ids,
                              const std::vector<double>& dy, std::vector<double>& dtable) {
  for (size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] == padding) continue;
    for (int64_t d = 0; d < width; ++d)
      dtable[static_cast<size_t>(ids[t] * width + d)] += dy[t * static_cast<size_t>(width) + static_cast<size_t>(d)];
  }
}

}  // namespace braid
