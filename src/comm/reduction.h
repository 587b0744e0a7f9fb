// The arithmetic of reductions, one pair of operands at a time: dst = op(dst, src). Floating-point sums are taken in
// FP32 and rounded once to the type of the elements, so that a result has one rounding for every addition on its path.
// Integers wrap. max and min give NaN where an operand is NaN and take +0 for larger than -0. Every operation commutes
// bit for bit (NaNs are all written as the same quiet NaN), so two ranks that exchange operands agree.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace braid::comm {

enum class Reduction : uint8_t { sum, max, min };

const char* name_of(Reduction op);
std::optional<Reduction> reduction_of(std::string_view name);

// F32, BF16, F16, I32, I64 and U8. Other types may be moved, but not reduced.
bool reducible(DType type);

// count elements; dst and src do not overlap and need no alignment.
void combine(DType type, Reduction op, std::byte* dst, const std::byte* src, int64_t count);

}  // namespace braid::comm
