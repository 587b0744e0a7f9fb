// A step of Muon on a matrix is three calls (docs/internals/train.md, Muon), so that ranks that hold parts of a matrix
// can put it together in between:
//   muon_direction    g = grad_scale * g        m = m + (1 - momentum) * (g - m)
//                     g = g + momentum * (m - g), or m without Nesterov
//   orthogonalize     X = x / ||x||, on its smaller side; five times  A = X X^T,  X = a X + (b A + c A A) X
//   muon_apply        w = w * (1 - lr * weight_decay) - lr * scale * x
// (a, b, c) = (3.4445, -4.7750, 2.0315) take singular values from 0.01 to 1 into [0.68, 1.14]. All FP32. A fused matrix
// (qkv, gate and up, stacked experts) is one step per part: rows may have any stride. Anything but matrices, and
// embeddings, the head and Mamba's in_proj, belong to AdamW.
#pragma once
#include <algorithm>
#include <cmath>

#include "core/op.h"

namespace braid {

// The gradient becomes the direction of the update.
struct MuonDirection {
  MutView g{};  // [M, N] F32
  MutView m{};  // [M, N] F32, initially zero
  double momentum = 0.95, grad_scale = 1;
  bool nesterov = true;
  static constexpr const char* name = "muon_direction";
  static constexpr auto fields() {
    return std::tuple{inout("g", &MuonDirection::g, "M N"), inout("m", &MuonDirection::m, "M N")};
  }
  double flops() const { return 5.0 * static_cast<double>(g.count()); }
  static std::span<const Row<MuonDirection>> rows();
};

struct Orthogonalize {
  MutView x{};  // [M, N] F32
  static constexpr int64_t kSteps = 5;
  static constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  static constexpr const char* name = "orthogonalize";
  static constexpr auto fields() { return std::tuple{inout("x", &Orthogonalize::x, "M N")}; }
  double flops() const {
    const auto less = static_cast<double>(std::min(x.dim(0), x.dim(1))),
               more = static_cast<double>(std::max(x.dim(0), x.dim(1)));
    return kSteps * less * less * (3 * more + less);  // half of each symmetric product
  }
  static std::span<const Row<Orthogonalize>> rows();
};

struct MuonApply {
  View x{};           // [M, N] F32
  MutView w{};        // [M, N] F32, the master
  MutView working{};  // [M, N] BF16, or empty
  double lr = 0, weight_decay = 0;
  double scale = 1;  // muon_scale below, or another choice
  static constexpr const char* name = "muon_apply";
  static constexpr auto fields() {
    return std::tuple{in("x", &MuonApply::x, "M N"), inout("w", &MuonApply::w, "M N"),
                      optional_out("working", &MuonApply::working, "M N")};
  }
  double flops() const { return 3.0 * static_cast<double>(w.count()); }
  static std::span<const Row<MuonApply>> rows();
};

// Makes the RMS of an update about that of AdamW, so that both can share a learning rate. Of the whole matrix.
inline double muon_scale(int64_t rows, int64_t cols) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
}

}  // namespace braid
