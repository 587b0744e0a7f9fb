// The router, one token at a time, in double precision: a sigmoid in FP32 makes equal scores of logits that differ, and
// which expert wins a near tie decides all that follows. Plain loops: with 128 to 512 experts the scores take some
// microseconds per token against milliseconds for its experts. The K best are kept sorted while scanning the experts,
// so only the few that enter the list cost more than one comparison.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/router/router_rows.h"
#include "sys/check.h"

namespace braid {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// For ranking: NaN ranks like a dropped group, so that every logit has a rank.
double rank_of(double score) { return std::isnan(score) ? kLowest : score; }

double two_best(const double* selection, int64_t n) {
  double first = kLowest, second = kLowest;
  for (int64_t i = 0; i < n; ++i) {
    const double s = selection[i];
    if (s > first) {
      second = first;
      first = s;
    } else if (s > second) {
      second = s;
    }
  }
  return first + second;
}

// The k largest of [0, n) in descending order, ties in index order.
void top(const double* values, int64_t n, int64_t k, int32_t* best) {
  int64_t held = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (held == k && !(values[i] > values[best[k - 1]])) continue;
    int64_t at = held < k ? held++ : k - 1;
    for (; at > 0 && values[i] > values[best[at - 1]]; --at) best[at] = best[at - 1];
    best[at] = static_cast<int32_t>(i);
  }
}

// The best experts of one token; `selection` is scratch [E], then [n_group] group scores and their order (as I32).
void select(const RouterFwd& op, const double* scores, double* selection, int32_t* chosen) {
  const int64_t experts = op.logits.dim(1);
  const float* bias = op.bias ? op.bias.as<float>() : nullptr;
  for (int64_t e = 0; e < experts; ++e)
    selection[e] = rank_of(bias ? scores[e] + static_cast<double>(bias[e]) : scores[e]);
  if (op.n_group > 1) {
    double* groups = selection + experts;
    auto* order = reinterpret_cast<int32_t*>(groups + op.n_group);
    const int64_t size = experts / op.n_group;
    for (int64_t g = 0; g < op.n_group; ++g) groups[g] = rank_of(two_best(selection + g * size, size));
    top(groups, op.n_group, op.n_group, order);
    for (int64_t i = op.topk_group; i < op.n_group; ++i) std::fill_n(selection + order[i] * size, size, kLowest);
  }
  top(selection, experts, op.experts.dim(1), chosen);
}

// Experts are chosen all the same, but what they give must not pass for an answer.
bool has_nan(const RouterFwd& op, const double* scores) {
  const int64_t experts = op.logits.dim(1);
  const float* bias = op.bias && !op.forced ? op.bias.as<float>() : nullptr;
  bool nan = false;
  for (int64_t e = 0; e < experts; ++e) nan |= std::isnan(scores[e]) || (bias && std::isnan(bias[e]));
  return nan;
}

// Scratch of one thread: scores [E], selection [E], group scores [n_group], group order [n_group] (as I32).
void route(const RouterFwd& op, int64_t t, double* scratch) {
  const int64_t experts = op.logits.dim(1), k = op.experts.dim(1);
  double* scores = scratch;
  router_scores(op.logits.as<float>(t), experts, op.kind, scores);
  int32_t* chosen = op.experts.as<int32_t>(t);
  if (op.forced) {
    std::copy_n(op.forced.as<int32_t>(t), k, chosen);
    for (int64_t j = 0; j < k; ++j)
      CHECK(chosen[j] >= 0 && chosen[j] < experts, "router: expert {} of {}", chosen[j], experts);
  } else {
    select(op, scores, scores + experts, chosen);
  }
  float* weights = op.weights.as<float>(t);
  if (has_nan(op, scores)) {
    std::fill_n(weights, k, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  double sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += scores[chosen[j]];
  const double factor = static_cast<double>(op.scale) / (op.normalise ? sum + 1e-20 : 1.0);
  for (int64_t j = 0; j < k; ++j) weights[j] = static_cast<float>(scores[chosen[j]] * factor);
}

int64_t scratch_numbers(const RouterFwd& op) { return 2 * (op.logits.dim(1) + op.n_group); }

}  // namespace

template <class Num>
void router_scores(const float* logits, int64_t experts, RouterKind kind, Num* scores) {
  if (kind == RouterKind::sigmoid) {
    for (int64_t e = 0; e < experts; ++e) scores[e] = Num(1) / (Num(1) + std::exp(-static_cast<Num>(logits[e])));
    return;
  }
  const float top = *std::max_element(logits, logits + experts);
  Num sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    scores[e] = std::exp(static_cast<Num>(logits[e]) - static_cast<Num>(top));
    sum += scores[e];
  }
  for (int64_t e = 0; e < experts; ++e) scores[e] /= sum;
}
template void router_scores(const float*, int64_t, RouterKind, float*);
template void router_scores(const float*, int64_t, RouterKind, double*);

int64_t router_fwd_cpu_workspace(const RouterFwd& op, int threads) {
  return scratch_numbers(op) * threads * static_cast<int64_t>(sizeof(double));
}

void router_fwd_cpu(Ctx& ctx, const RouterFwd& op, std::span<std::byte> workspace) {
  const int64_t tokens = op.logits.dim(0);
  auto* scratch = reinterpret_cast<double*>(workspace.data());
  sys::parallel(static_cast<int>(std::clamp<int64_t>(tokens / 16, 1, ctx.threads)), [&](int thread, int team) {
    for (int64_t t = tokens * thread / team; t < tokens * (thread + 1) / team; ++t)
      route(op, t, scratch + thread * scratch_numbers(op));
  });
}

}  // namespace braid
