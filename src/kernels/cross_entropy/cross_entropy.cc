#include "kernels/cross_entropy/cross_entropy.h"

#include "core/ref.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"
#include "kernels/cross_entropy/cross_entropy_rows.h"

namespace braid {
namespace {

template <class Op>
void check_targets(const Op& op) {
  CHECK(op.targets.dtype == DType::i32, "{}: targets are {}", Op::name, name_of(op.targets.dtype));
  for (int64_t t = 0; t < op.targets.dim(0); ++t) {
    const int32_t target = *op.targets.template as<int32_t>(t);
    CHECK(target >= -1 && target <= op.logits.dim(1), "{}: target {} of {}", Op::name, target, op.logits.dim(1));
  }
}

void fwd_ref(Ctx&, const CrossEntropyFwd& op, std::span<std::byte>) {
  check_targets(op);
  const int64_t tokens = op.logits.dim(0);
  std::vector<double> loss(static_cast<size_t>(tokens)), lse(static_cast<size_t>(tokens));
  cross_entropy_fwd_ref(tokens, op.logits.dim(1), to_doubles(op.logits), to_doubles(op.targets), loss, lse);
  store(op.loss, loss);
  store(op.lse, lse);
}

// dlogits = dloss * (softmax(logits) - onehot(target))
void bwd_ref(Ctx&, const CrossEntropyBwd& op, std::span<std::byte>) {
  check_targets(op);
  const int64_t vocab = op.logits.dim(1);
  const auto logits = to_doubles(op.logits), targets = to_doubles(op.targets), lse = to_doubles(op.lse),
             dloss = to_doubles(op.dloss);
  std::vector<double> dlogits(logits.size());
  for (size_t i = 0; i < dlogits.size(); ++i) {
    const size_t t = i / static_cast<size_t>(vocab);
    if (targets[t] < 0) continue;
    const bool hit = static_cast<int64_t>(i) % vocab == static_cast<int64_t>(targets[t]);
    dlogits[i] = dloss[t] * (std::exp(logits[i] - lse[t]) - (hit ? 1 : 0));
  }
  store(op.dlogits, dlogits);
}

template <class Op, void (*kRun)(Ctx&, const Op&, std::span<std::byte>)>
void run_hwy(Ctx& ctx, const Op& op, std::span<std::byte> workspace) {
  check_targets(op);
  kRun(ctx, op, workspace);
}

const char* fwd_hwy_supports(const CrossEntropyFwd& op) {
  for (const View& v : {op.logits, View(op.loss), View(op.lse)}) {
    if (v.dtype != DType::f32) return "not F32";
  }
  return op.logits.rows_contiguous() ? nullptr : "strided rows";
}

const char* bwd_hwy_supports(const CrossEntropyBwd& op) {
  for (const View& v : {op.dloss, op.logits, op.lse, View(op.dlogits)}) {
    if (v.dtype != DType::f32) return "not F32";
  }
  return op.logits.rows_contiguous() && op.dlogits.rows_contiguous() ? nullptr : "strided rows";
}

}  // namespace

std::span<const Row<CrossEntropyFwd>> CrossEntropyFwd::rows() {
  static constexpr Row<CrossEntropyFwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &fwd_hwy_supports,
       .run = &run_hwy<CrossEntropyFwd, &cross_entropy_fwd_hwy>},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}
std::span<const Row<CrossEntropyBwd>> CrossEntropyBwd::rows() {
  static constexpr Row<CrossEntropyBwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &bwd_hwy_supports,
       .run = &run_hwy<CrossEntropyBwd, &cross_entropy_bwd_hwy>},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
