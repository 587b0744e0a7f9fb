#include "kernels/router/router.h"

#include "core/ref.h"
#include "kernels/router/router_ref.h"
#include "kernels/router/router_rows.h"

namespace braid {
namespace {

// Model code has held the config to these before.
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
    for (int64_t j = 0; j < k; ++j) {
      set_element(op.experts, t * k + j, static_cast<double>(experts[static_cast<size_t>(j)]));
      set_element(op.weights, t * k + j, weights[static_cast<size_t>(j)]);
    }
  }
}

void fwd_cpu(Ctx& ctx, const RouterFwd& op, std::span<std::byte> workspace) {
  check_shape(op);
  router_fwd_cpu(ctx, op, workspace);
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

}  // namespace braid
