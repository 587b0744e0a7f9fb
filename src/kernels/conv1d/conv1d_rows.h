// The variants behind the table of conv1d.cc.
#pragma once
#include <hwy/cache_control.h>

#include "kernels/conv1d/conv1d.h"

namespace braid {

inline constexpr int64_t kConv1dPanel = 512;     // channels of a task: 4 rows of x and the taps fill half of a 48 KB L1
inline constexpr int64_t kConv1dBwdPanel = 256;  // backward keeps twice as many rows with them
inline constexpr int64_t kConv1dWidthMax = 8;    // taps
inline constexpr int64_t kConv1dAhead = 4;       // tokens

// Rows of a panel are pages apart, where hardware does not prefetch.
template <class Num>
void conv1d_prefetch(const Num* row, int64_t size) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Num));
  for (int64_t i = 0; i < size; i += kLine) hwy::Prefetch(row + i);
}

void conv1d_fwd_hwy(Ctx& ctx, const Conv1dFwd& op, std::span<std::byte> workspace);
void conv1d_bwd_hwy(Ctx& ctx, const Conv1dBwd& op, std::span<std::byte> workspace);

}  // namespace braid
