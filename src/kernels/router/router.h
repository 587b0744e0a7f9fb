// Which experts see a token, and how much each counts (nemotron.md 3.6). All in FP32:
//   s   = sigmoid(logits)  or  softmax(logits) over all experts
//   sel = s + bias                               the bias only selects, it never enters a weight
//   with n_group > 1: a group of E / n_group neighbours scores the sum of its two largest sel; all but the topk_group
//   best groups drop to -inf
//   experts = the K largest sel, best first      equal scores: lowest index first, of groups too
//   weights = s[experts], over their sum (+ 1e-20) if `normalise`, times `scale`
// With `forced`, the experts are given (a replay of recorded routes) and only their weights are computed.
// Whatever the logits, NaN included, `experts` are K different indices below E.
// Inference only: backward comes with training.
#pragma once
#include "core/op.h"

namespace braid {

enum class RouterKind : uint8_t { sigmoid, softmax };

struct RouterFwd {
  View logits{};      // [T, E] F32
  View bias{};        // [E] F32, or empty
  View forced{};      // [T, K] I32 below E, or empty
  MutView experts{};  // [T, K] I32
  MutView weights{};  // [T, K] F32
  RouterKind kind = RouterKind::sigmoid;
  int64_t n_group = 1;     // divides E into groups of at least 2
  int64_t topk_group = 1;  // groups kept
  bool normalise = true;
  float scale = 1;
  static constexpr const char* name = "router_fwd";
  static constexpr auto fields() {
    return std::tuple{in("logits", &RouterFwd::logits, "T E"), maybe("bias", &RouterFwd::bias, "E"),
                      maybe("forced", &RouterFwd::forced, "T K"), out("experts", &RouterFwd::experts, "T K"),
                      out("weights", &RouterFwd::weights, "T K")};
  }
  // Scores, and one comparison an expert.
  double flops() const { return 6.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<RouterFwd>> rows();
};

}  // namespace braid
