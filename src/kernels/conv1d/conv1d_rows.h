// The variants behind the table of conv1d.cc.
#pragma once
#include "kernels/conv1d/conv1d.h"

namespace braid {

inline constexpr int64_t kConv1dPanel = 512;   // channels of a task: 4 rows of x and the taps fill half of a 48 KB L1
inline constexpr int64_t kConv1dWidthMax = 8;  // taps

void conv1d_fwd_hwy(Ctx& ctx, const Conv1dFwd& op, std::span<std::byte> workspace);

}  // namespace braid
