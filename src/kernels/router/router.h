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
// Backward goes through the weights of the chosen experts, and through two auxiliary losses, both sums over tokens,
// with p = s (softmax) or s / sum(s) (sigmoid):
//   balance   sum_t sum_e factors[s, e] p_te      s: the sequence of t; factors have no gradient.
//             Those of a balance loss are coef E n_e / (K T),
//             where n_e of T tokens chose expert e (nn/balance.h)
//   z         sum_t logsumexp(logits_t)^2
// Cuts between sequences change nothing.
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
  MutView scores{};  // [S, E] F32: sums of p over the tokens of each sequence
  MutView z{};       // [S] F32: its z loss
  MutView load{};    // [E] I32, accumulates: tokens that chose each expert
  RouterKind kind = RouterKind::sigmoid;
  const SeqMap* seqs = nullptr;  // null: one sequence
  static constexpr const char* name = "router_stats";
  static constexpr auto fields() {
    return std::tuple{in("logits", &RouterStats::logits, "T E"), in("experts", &RouterStats::experts, "T K"),
                      out("scores", &RouterStats::scores, "S E"), out("z", &RouterStats::z, "S"),
                      inout("load", &RouterStats::load, "E")};
  }
  double flops() const { return 8.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<RouterStats>> rows();
};

struct RouterBwd {
  View logits{};      // [T, E] F32
  View experts{};     // [T, K] I32
  View dweights{};    // [T, K] F32
  View factors{};     // [S, E] F32 of the balance loss, or empty
  MutView dlogits{};  // [T, E] F32
  RouterKind kind = RouterKind::sigmoid;
  bool normalise = true;
  float scale = 1;
  float z = 0;                   // factor of the z loss
  const SeqMap* seqs = nullptr;  // null: one sequence
  static constexpr const char* name = "router_bwd";
  static constexpr auto fields() {
    return std::tuple{in("logits", &RouterBwd::logits, "T E"), in("experts", &RouterBwd::experts, "T K"),
                      in("dweights", &RouterBwd::dweights, "T K"), maybe("factors", &RouterBwd::factors, "S E"),
                      out("dlogits", &RouterBwd::dlogits, "T E")};
  }
  double flops() const { return 12.0 * static_cast<double>(logits.count()); }
  static std::span<const Row<RouterBwd>> rows();
};

// Loss-free balancing, after each step: bias += rate * sign(mean load - load) (arXiv 2408.15664).
// load [E] I32 over the whole step, bias [E] F32.
void update_router_bias(const View& load, float rate, const MutView& bias);

// Quantile balancing. A token with scores s takes expert e if the margin s_e + bias_e - a is positive, where a is its
// (K + 1)-th largest s + bias: moving each bias by minus the quantile of its expert's margins that K T / E tokens
// exceed is one step of coordinate descent in the dual of the best assignment with equal loads. Margins are counted in
// bins, so that batches and ranks add theirs up without a rounding. Bin i has margins in (lower(i), lower(i + 1)], the
// first and the last all beyond: a bias moves by at most kMarginMost in a step.
constexpr int64_t kMarginBins = 1024;
constexpr double kMarginMost = 0.25;
struct RouterMargins {
  View logits{};   // [T, E] F32
  View bias{};     // [E] F32
  MutView bins{};  // [E, kMarginBins] I32, accumulates
  int64_t top_k = 1;
  RouterKind kind = RouterKind::sigmoid;
};
void count_router_margins(Ctx& ctx, const RouterMargins& op);
// bias -= share * quantile; then its mean is subtracted, which changes no choice. Without tokens, and where a token
// takes all experts, nothing changes.
void balance_router_bias(const View& bins, int64_t top_k, float share, const MutView& bias);

}  // namespace braid
