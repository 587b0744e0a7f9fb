#include "kernels/head_loss/head_loss.h"

#include <algorithm>
#include <array>

#include "codec/codec.h"
#include "core/ref.h"
#include "kernels/head_loss/head_loss_ref.h"
#include "kernels/head_loss/head_loss_rows.h"
#include "math/packed_rows.h"
#include "math/pieces.h"

namespace braid {
namespace {

void check_targets(const HeadLoss& op) {
  CHECK(op.targets.dtype == DType::i32, "head_loss: targets are {}", name_of(op.targets.dtype));
  for (int64_t t = 0; t < op.targets.dim(0); ++t) {
    const int32_t target = *op.targets.as<int32_t>(t);
    CHECK(target >= -1 && target < op.w.rows, "head_loss: target {} of {}", target, op.w.rows);
  }
}

void run_problem_ref(const HeadLoss& op) {
  check_targets(op);
  const int64_t tokens = op.x.dim(0), vocab = op.w.rows, depth = op.w.cols;
  const auto x = to_doubles(op.x), w = decode(op.w), weights = to_doubles(op.token_weight);
  std::vector<double> loss(static_cast<size_t>(tokens)), lse(loss), dx(x.size()), g(static_cast<size_t>(vocab));
  for_each_piece(op.seqs, tokens, [&](int64_t first, int64_t n) {
    std::vector<double> dw(op.dw ? w.size() : 0);
    for (int64_t t = first; t < first + n; ++t) {
      const auto i = static_cast<size_t>(t);
      const double* row = &x[static_cast<size_t>(t * depth)];
      const int64_t target = *op.targets.as<int32_t>(t);
      head_loss_ref(vocab, depth, row, w, target, loss[i], lse[i], g.data());
      const double upstream = target < 0 ? 0 : weights.empty() ? 1 : weights[i];
      const double mass = 1 + 2 * static_cast<double>(op.z) * lse[i];
      for (int64_t v = 0; v < vocab && upstream != 0; ++v) {
        const double dlogit = upstream * (g[static_cast<size_t>(v)] * mass - (v == target ? 1 : 0));
        for (int64_t d = 0; d < depth; ++d) {
          const auto at = static_cast<size_t>(v * depth + d);
          dx[static_cast<size_t>(t * depth + d)] += dlogit * w[at];
          if (op.dw) dw[at] += dlogit * row[d];
        }
      }
    }
    accumulate(op.dw, dw);
  });
  store(op.loss, loss);
  store(op.lse, lse);
  store(op.dx, dx);
}

template <class Op>
void run_ref(Ctx&, const Op& op, std::span<std::byte>) {
  run_problem_ref(problem_of(op));
}

struct Packed {
  template <class Op>
  static const char* supports(packed::Class c, const Op& op) {
    return head_loss_packed_supports(c, problem_of(op));
  }
  template <class Op>
  static int64_t workspace(packed::Class c, const Op& op, int threads) {
    return head_loss_packed_workspace(c, problem_of(op), threads);
  }
  template <class Op>
  static void run(packed::Class c, Ctx& ctx, const Op& op, std::span<std::byte> space) {
    const HeadProblem problem = problem_of(op);
    check_targets(problem);
    head_loss_packed(c, ctx, problem, space);
  }
};

template <class Op>
constexpr std::array<Row<Op>, 5> kRowsOf = {packed::kTileRow<Op, Packed>, packed::kDotRow<Op, Packed>,
                                            packed::kBf16Row<Op, Packed>, packed::kF32Row<Op, Packed>,
                                            Row<Op>{.name = "ref", .numerics = "f64", .run = &run_ref<Op>}};

}  // namespace

std::span<const Row<HeadLoss>> HeadLoss::rows() { return kRowsOf<HeadLoss>; }
std::span<const Row<HeadLossFwd>> HeadLossFwd::rows() { return kRowsOf<HeadLossFwd>; }
std::span<const Row<HeadLossBwd>> HeadLossBwd::rows() { return kRowsOf<HeadLossBwd>; }

}  // namespace braid
