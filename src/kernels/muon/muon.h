// One step of Muon on a matrix: momentum, orthogonalised before the update (docs/internals/train.md, Muon).
//   g = grad_scale * g        m = m + (1 - momentum) * (g - m)        u = g + momentum * (m - g), or m without Nesterov
//   X = u / ||u||, on its smaller side; five times  A = X X^T,  X = a X + (b A + c A A) X
//   w = w * (1 - lr * weight_decay) - lr * scale * X
// (a, b, c) = (3.4445, -4.7750, 2.0315) take singular values from 0.01 to 1 into [0.68, 1.14]. All FP32. A fused matrix
// (qkv, gate and up, stacked experts) is one call per part: rows may have any stride. Anything but matrices, and
// embeddings, the head and Mamba's in_proj, belong to AdamW.
#pragma once
#include <algorithm>
#include <cmath>

#include "core/op.h"

namespace braid {

struct MuonStep {
  View g{};           // [M, N] F32
  MutView w{};        // [M, N] F32, the master
  MutView m{};        // [M, N] F32, initially zero
  MutView working{};  // [M, N] BF16, or empty
  double lr = 0, momentum = 0.95, weight_decay = 0;
  double scale = 1;  // muon_scale below, or another choice
  double grad_scale = 1;
  bool nesterov = true;
  static constexpr int64_t kSteps = 5;
  static constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  static constexpr const char* name = "muon_step";
  static constexpr auto fields() {
    return std::tuple{in("g", &MuonStep::g, "M N"), inout("w", &MuonStep::w, "M N"), inout("m", &MuonStep::m, "M N"),
                      optional_out("working", &MuonStep::working, "M N")};
  }
  double flops() const {
    const auto less = static_cast<double>(std::min(w.dim(0), w.dim(1))),
               more = static_cast<double>(std::max(w.dim(0), w.dim(1)));
    return kSteps * less * less * (3 * more + less);  // half of each symmetric product
  }
  static std::span<const Row<MuonStep>> rows();
};

// Makes the RMS of an update about that of AdamW, so that both can share a learning rate.
inline double muon_scale(int64_t rows, int64_t cols) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
}

}  // namespace braid
