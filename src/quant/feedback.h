// Rounding with error feedback. The output error of a row is e G e^T, with e = w - q and the mean G of x x^T over the
// inputs. With G + damping = U D U^T, U unit upper triangular, it is
//
//   sum over k of D[k] (e U)[k]^2,   (e U)[k] = e[k] + sum over j < k of e[j] U[j, k]
//
// so column k is rounded from w[k] + sum over j < k of e[j] U[j, k]: what columns before it did wrong, this one takes
// back as far as it can. That is GPTQ (arXiv 2210.17323) in the form of LDLQ (arXiv 2307.13304, theorem 6), which needs
// no inverse. Columns come block by block, a block being the values that share a scale, those with the largest mean
// inputs first; a scale is chosen by the format's own rule from what the block's columns would become unrounded, and
// searches weight squared errors by D. The factorisation is in F64, the rounding in F32.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "codec/quant_codec.h"
#include "core/ctx.h"

namespace braid::quant {

struct Feedback {
  int64_t cols = 0, block = 1;
  std::vector<int64_t> order;  // of blocks
  std::vector<float> upper;    // U [cols, cols] in that order; only above the diagonal is it set
  std::vector<float> pivots;   // D
};

// Of G [cols, cols]. `damping`, a share of the mean of G's diagonal, is added to the diagonal, so that inputs which are
// linearly dependent, or always zero, are no trouble. G has a positive diagonal somewhere.
Feedback factor(std::span<const double> gram, int64_t cols, int64_t block, double damping, int threads);

// values [rows, cols], row-major. The result's error is that of the values, not of outputs.
models::Encoded encode_with_feedback(std::span<const float> values, const BlockCoder& coder, const Feedback& feedback,
                                     float largest, int threads);

// e G e^T for every row of the errors [rows, cols]; G [cols, cols] in F32.
std::vector<double> output_errors(Ctx& ctx, std::span<const float> errors, std::span<const float> gram, int64_t cols);

}  // namespace braid::quant
