// The router: selects each token's experts and their weights (docs/internals/layers.md, Router). All in FP32:
//   s   = sigmoid(logits)  or  softmax(logits) over all experts
//   sel = s + bias                               the bias only selects, it never enters a weight
//   with n_group > 1: a group of E / n_group neighbours scores the sum of its two largest sel; all but the topk_group
//   best groups drop to -inf
//   experts = the K largest sel, best first      ties: lowest index first, also for groups
//   weights = s[experts], over their sum (+ 1e-20) if `normalise`, times `scale`
// With `forced`, the experts are given (a replay of recorded routes) and only their weights are computed.
// For any logits, NaN included, `experts` are K distinct indices below E.
//
// Backward goes through the weights of the chosen experts, and through two auxiliary losses. Over a sequence of T
// tokens, n_e of which chose expert e, with p = s (softmax) or s / sum(s) (sigmoid):
//   balance   E / (K T) * sum_e n_e * sum_t p_te      T when all experts are used alike; only p has a gradient
//   z         sum_t logsumexp(logits_t)^2
// Both are sums over tokens: for coef * mean, pass coef / tokens of the step. Cuts between sequences change nothing.
// Where a sequence of the map is a piece of a longer one, `counts` has the n_e of the whole, and K T is their sum: the
// losses of all pieces add up to those of the sequence.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

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
  // Scores, and one comparison per expert.
  double flops() const { return 6.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<RouterFwd>> rows();
};

// Routing statistics of a batch, for logs and the selection bias. Loads accumulate, so a replay must skip this op.
struct RouterStats {
  View logits{};     // [T, E] F32
  View experts{};    // [T, K] I32
  View counts{};     // [S, E] I32, or empty: those of `experts`
  MutView losses{};  // [S, 2] F32: balance and z of each sequence
  MutView load{};    // [E] I32, accumulates: tokens that chose each expert
  RouterKind kind = RouterKind::sigmoid;
  const SeqMap* seqs = nullptr;  // null: one sequence
  static constexpr const char* name = "router_stats";
  static constexpr auto fields() {
    return std::tuple{in("logits", &RouterStats::logits, "T E"), in("experts", &RouterStats::experts, "T K"),
                      maybe("counts", &RouterStats::counts, "S E"), out("losses", &RouterStats::losses, "S 2"),
                      inout("load", &RouterStats::load, "E")};
  }
  double flops() const { return 8.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<RouterStats>> rows();
};

struct RouterBwd {
  View logits{};      // [T, E] F32
  View experts{};     // [T, K] I32
  View dweights{};    // [T, K] F32
  View counts{};      // [S, E] I32, or empty: those of `experts`
  MutView dlogits{};  // [T, E] F32
  RouterKind kind = RouterKind::sigmoid;
  bool normalise = true;
  float scale = 1;
  float balance = 0, z = 0;      // factors of the two losses
  const SeqMap* seqs = nullptr;  // null: one sequence
  static constexpr const char* name = "router_bwd";
  static constexpr auto fields() {
    return std::tuple{in("logits", &RouterBwd::logits, "T E"), in("experts", &RouterBwd::experts, "T K"),
                      in("dweights", &RouterBwd::dweights, "T K"), maybe("counts", &RouterBwd::counts, "S E"),
                      out("dlogits", &RouterBwd::dlogits, "T E")};
  }
  double flops() const { return 12.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<RouterBwd>> rows();
};

// Loss-free balancing, after each step: bias += rate * sign(mean load - load) (arXiv 2408.15664).
// load [E] I32 over the whole step, bias [E] F32.
void update_router_bias(const View& load, float rate, const MutView& bias);

}  // namespace braid
