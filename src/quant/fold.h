// Scales of input channels before rounding (AWQ, arXiv 2306.00978, section 3.2): with x' = x / s and W' = W diag(s) the
// product is the same, and channels with large inputs lose less. What makes x is a norm, whose weight takes 1 / s; all
// matrices that read it take s, those that stay unquantised too. Scales here are powers of two, so that in BF16 norms
// and unquantised matrices stay exact: the fold by itself changes no bit of a product.
//
//   s[c] = 2^round(alpha log2(m[c] / m')),  m the mean magnitudes of the inputs, m' their geometric mean
//
// over channels that are not always zero; exponents are within 0 and 3: a channel that samples rarely use may matter
// elsewhere, so none gets less than its own precision. What makes x may also be an up matrix: with gates x
// is linear in it, and its rows take 1 / s; without, x = relu(u)^2, they take 1 / sqrt(s), and exponents are even.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/view.h"

namespace braid::quant {

inline constexpr double kFoldAlphas[] = {0.25, 0.5, 0.75, 1};

// Exponents are multiples of `step`.
std::vector<float> fold_scales(std::span<const double> magnitudes, double alpha, double step = 1);

// The bytes of a tensor [cols] or [rows, cols] whose columns are multiplied by the scales, or divided by them; nothing
// if its type would round a value.
std::optional<std::vector<std::byte>> folded(const View& tensor, std::span<const float> scales, bool divide);
// The same for rows, which are multiplied.
std::optional<std::vector<std::byte>> folded_rows(const View& matrix, std::span<const float> scales);

}  // namespace braid::quant
