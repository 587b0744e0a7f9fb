// SSM states in INT8, for copies that nothing computes on: a quarter of the bytes. A value is code * row * column, with
// a scale for every channel p and one for every state n of a head, both BF16: states are close to sums of outer
// products x B, whose channels and columns differ in size by orders of magnitude. Of real states this loses less than
// half of what a scale for each row or each 32 values loses (docs/internals/formats.md, States).
//   row[p]     max over n of |v|, rounded up
//   column[n]  max over p of |v| / row[p], over 127, rounded up
//   code       v / row / column to nearest: it is encoded once, and not with every token, so that draws would add noise
// The error of a value is at most half of row * column, with column <= 1/127 * (1 + 2^-6), plus 1e-30 * (1 + row): what
// is smaller becomes 0. A row with NaN, infinity or a value above 3.3e38 is NaN as a whole; the others are not touched
// by it. Inference only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/view.h"

namespace braid {

// Of a state [H, P, N].
int64_t coded_state_bytes(int64_t heads, int64_t head_dim, int64_t state);
// state [H, P, N] F32, contiguous; `coded` has as many bytes, at an even address.
void encode_state(int threads, const View& state, std::span<std::byte> coded);
void decode_state(int threads, std::span<const std::byte> coded, const MutView& state);

}  // namespace braid
