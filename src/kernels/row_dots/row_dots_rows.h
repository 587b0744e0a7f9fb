// The variants behind the table of row_dots.cc.
#pragma once
#include "kernels/row_dots/row_dots.h"

namespace braid {

void row_dots_hwy(Ctx& ctx, const RowDots& op, std::span<std::byte> workspace);

}  // namespace braid
