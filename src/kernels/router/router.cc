#include "kernels/router/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/ref.h"
#include "kernels/router/router_ref.h"
#include "kernels/router/router_rows.h"

namespace braid {
namespace {

// Model code has already checked the config for these.
void check_shape(const RouterFwd& op) {
  const int64_t experts = op.logits.dim(1), k = op.experts.dim(1);
  CHECK(k >= 1 && k <= experts, "router_fwd: K = {} of E = {}", k, experts);
  CHECK(op.n_group == 1 || (op.n_group > 1 && experts % op.n_group == 0 && experts / op.n_group >= 2),
        "router_fwd: E = {} in {} groups", experts, op.n_group);
  CHECK(op.topk_group >= 1 && op.topk_group <= op.n_group, "router_fwd: {} of {} groups", op.topk_group, op.n_group);
  CHECK(op.logits.dtype == DType::f32 && (!op.bias || op.bias.dtype == DType::f32), "router_fwd is FP32");
}

void fwd_ref(Ctx&, const RouterFwd& op, std::span<std::byte>) {
  check_shape(op);
  const int64_t tokens = op.logits.dim(0), k = op.experts.dim(1);
  const RouterRefOptions options{.softmax = op.kind == RouterKind::softmax,
                                 .n_group = op.n_group,
                                 .topk_group = op.topk_group,
                                 .normalise = op.normalise,
                                 .scale = static_cast<double>(op.scale)};
  const auto bias = to_doubles(op.bias);
  std::vector<size_t> experts(static_cast<size_t>(k));
  std::vector<double> weights(experts.size());
  for (int64_t t = 0; t < tokens; ++t) {
    const auto scores = router_scores_ref(to_doubles(op.logits.slice(0, t, 1)), options.softmax);
    if (op.forced) {
      for (int64_t j = 0; j < k; ++j)
        experts[static_cast<size_t>(j)] = static_cast<size_t>(element(op.forced, t * k + j));
    } else {
      router_select_ref(options, scores, bias, experts);
    }
    router_weights_ref(options, scores, experts, weights);
    const auto is_nan = [](double v) { return std::isnan(v); };
    if (std::ranges::any_of(scores, is_nan) || (!op.forced && std::ranges::any_of(bias, is_nan)))
      weights.assign(weights.size(), NAN);
    for (int64_t j = 0; j < k; ++j) {
      set_element(op.experts, t * k + j, static_cast<double>(experts[static_cast<size_t>(j)]));
      set_element(op.weights, t * k + j, weights[static_cast<size_t>(j)]);
    }
  }
}

// One sequence of a batch.
struct Routed {
  std::vector<std::vector<double>> logits;
  std::vector<size_t> experts;
};
Routed sequence_of(const View& logits, const View& experts, const Seq& seq) {
  Routed out;
  for (int64_t t = seq.start; t < seq.start + seq.len; ++t) out.logits.push_back(to_doubles(logits.slice(0, t, 1)));
  for (const double e : to_doubles(experts.slice(0, seq.start, seq.len))) {
    CHECK(e >= 0 && e < static_cast<double>(logits.dim(1)), "router: expert {} of {}", e, logits.dim(1));
    out.experts.push_back(static_cast<size_t>(e));
  }
  return out;
}

int64_t sequences_of(const SeqMap* seqs) { return seqs ? static_cast<int64_t>(seqs->seqs.size()) : 1; }

void check_shape(const RouterStats& op) {
  const int64_t sequences = sequences_of(op.seqs);
  CHECK(op.scores.dim(0) == sequences, "router_stats: scores {} of {} sequences", to_string(op.scores.shape),
        sequences);
}

void check_shape(const RouterBwd& op) {
  const int64_t sequences = sequences_of(op.seqs);
  CHECK(!op.factors || op.factors.dim(0) == sequences, "router_bwd: factors {} of {} sequences",
        to_string(op.factors.shape), sequences);
}

void stats_ref(Ctx&, const RouterStats& op, std::span<std::byte>) {
  check_shape(op);
  const SeqMap whole = SeqMap::one(op.logits.dim(0));
  const SeqMap& map = op.seqs ? *op.seqs : whole;
  const auto count = static_cast<size_t>(op.logits.dim(1));
  const bool softmax = op.kind == RouterKind::softmax;
  for (size_t s = 0; s < map.seqs.size(); ++s) {
    const Routed routed = sequence_of(op.logits, op.experts, map.seqs[s]);
    std::vector<double> scores(count);
    for (const auto& token : routed.logits) {
      const auto shares = router_shares_ref(token, softmax);
      for (size_t e = 0; e < count; ++e) scores[e] += shares[e];
    }
    store(op.scores.slice(0, static_cast<int64_t>(s), 1), scores);
    set_element(op.z, static_cast<int64_t>(s), router_losses_ref(routed.logits, {}, softmax).z);
    accumulate(op.load, router_load_ref(count, routed.experts));
  }
}

void bwd_ref(Ctx&, const RouterBwd& op, std::span<std::byte>) {
  check_shape(op);
  const SeqMap whole = SeqMap::one(op.logits.dim(0));
  const auto k = static_cast<size_t>(op.experts.dim(1));
  const RouterRefOptions options{
      .softmax = op.kind == RouterKind::softmax, .normalise = op.normalise, .scale = static_cast<double>(op.scale)};
  const SeqMap& map = op.seqs ? *op.seqs : whole;
  for (size_t s = 0; s < map.seqs.size(); ++s) {
    const Seq& seq = map.seqs[s];
    const Routed routed = sequence_of(op.logits, op.experts, seq);
    std::vector<double> factors;
    if (op.factors) factors = to_doubles(op.factors.slice(0, static_cast<int64_t>(s), 1));
    for (size_t t = 0; t < routed.logits.size(); ++t) {
      const int64_t row = seq.start + static_cast<int64_t>(t);
      const std::vector<size_t> experts(&routed.experts[t * k], &routed.experts[t * k] + k);
      store(op.dlogits.slice(0, row, 1), router_bwd_ref(options, factors, static_cast<double>(op.z), routed.logits[t],
                                                        experts, to_doubles(op.dweights.slice(0, row, 1))));
    }
  }
}

void fwd_cpu(Ctx& ctx, const RouterFwd& op, std::span<std::byte> workspace) {
  check_shape(op);
  router_fwd_cpu(ctx, op, workspace);
}

void stats_cpu(Ctx& ctx, const RouterStats& op, std::span<std::byte> workspace) {
  check_shape(op);
  router_stats_cpu(ctx, op, workspace);
}

void bwd_cpu(Ctx& ctx, const RouterBwd& op, std::span<std::byte> workspace) {
  check_shape(op);
  router_bwd_cpu(ctx, op, workspace);
}

const char* stats_supports(const RouterStats& op) {
  if (op.logits.dtype != DType::f32 || op.scores.dtype != DType::f32 || op.z.dtype != DType::f32) return "not F32";
  const bool rows = op.logits.rows_contiguous() && op.experts.rows_contiguous() && op.scores.rows_contiguous();
  return rows && op.z.contiguous() && op.load.contiguous() ? nullptr : "strided rows";
}

const char* bwd_supports(const RouterBwd& op) {
  for (const View& v : {View(op.logits), op.dweights, View(op.dlogits)}) {
    if (v.dtype != DType::f32) return "not F32";
    if (!v.rows_contiguous()) return "strided rows";
  }
  const bool factors = !op.factors || (op.factors.dtype == DType::f32 && op.factors.rows_contiguous());
  return op.experts.rows_contiguous() && factors ? nullptr : "strided rows";
}

const char* cpu_supports(const RouterFwd& op) {
  const bool rows = op.logits.rows_contiguous() && op.experts.rows_contiguous() && op.weights.rows_contiguous();
  if (op.forced && !op.forced.rows_contiguous()) return "strided rows";
  return rows && (!op.bias || op.bias.rows_contiguous()) ? nullptr : "strided rows";
}

}  // namespace

std::span<const Row<RouterFwd>> RouterFwd::rows() {
  static constexpr Row<RouterFwd> kRows[] = {
      {.name = "cpu",
       .numerics = "f32",
       .supports = &cpu_supports,
       .workspace = &router_fwd_cpu_workspace,
       .run = &fwd_cpu},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<RouterStats>> RouterStats::rows() {
  static constexpr Row<RouterStats> kRows[] = {
      {.name = "cpu",
       .numerics = "f32",
       .supports = &stats_supports,
       .workspace = &router_stats_cpu_workspace,
       .run = &stats_cpu},
      {.name = "ref", .numerics = "f64", .run = &stats_ref},
  };
  return kRows;
}

std::span<const Row<RouterBwd>> RouterBwd::rows() {
  static constexpr Row<RouterBwd> kRows[] = {
      {.name = "cpu",
       .numerics = "f32",
       .supports = &bwd_supports,
       .workspace = &router_bwd_cpu_workspace,
       .run = &bwd_cpu},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

void update_router_bias(const View& load, float rate, const MutView& bias) {
  const int64_t count = load.dim(0);
  CHECK(bias.shape == load.shape, "router bias {} and load {}", to_string(bias.shape), to_string(load.shape));
  int64_t sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += load.as<int32_t>()[e];
  for (int64_t e = 0; e < count; ++e) {
    const int64_t excess = load.as<int32_t>()[e] * count - sum;
    bias.as<float>()[e] += excess > 0 ? -rate : excess < 0 ? rate : 0;
  }
}

}  // namespace braid
