// Cross-entropy of logits with targets, token by token: loss_t = lse_t - logits[t, target_t], lse_t = log sum_v exp.
// A target of -1 is masked: loss 0, gradient 0. A target of V is elsewhere, where V is a part of a vocabulary:
// loss lse, and a gradient without the 1 of the target. Everything in FP32, the maximum subtracted first.
#pragma once
#include "core/op.h"

namespace braid {

struct CrossEntropyFwd {
  View logits{};   // [T, V] F32
  View targets{};  // [T] I32, -1 for masked
  MutView loss{};  // [T] F32
  MutView lse{};   // [T] F32, what backward needs; may be empty
  static constexpr const char* name = "cross_entropy_fwd";
  static constexpr auto fields() {
    return std::tuple{in("logits", &CrossEntropyFwd::logits, "T V"), in("targets", &CrossEntropyFwd::targets, "T"),
                      out("loss", &CrossEntropyFwd::loss, "T"), optional_out("lse", &CrossEntropyFwd::lse, "T")};
  }
  double flops() const { return 4.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<CrossEntropyFwd>> rows();
};

struct CrossEntropyBwd {
  View dloss{};       // [T] F32
  View logits{};      // [T, V] F32
  View targets{};     // [T] I32
  View lse{};         // [T] F32
  MutView dlogits{};  // [T, V] F32
  static constexpr const char* name = "cross_entropy_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dloss", &CrossEntropyBwd::dloss, "T"), in("logits", &CrossEntropyBwd::logits, "T V"),
                      in("targets", &CrossEntropyBwd::targets, "T"), in("lse", &CrossEntropyBwd::lse, "T"),
                      out("dlogits", &CrossEntropyBwd::dlogits, "T V")};
  }
  double flops() const { return 3.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<CrossEntropyBwd>> rows();
};

}  // namespace braid
