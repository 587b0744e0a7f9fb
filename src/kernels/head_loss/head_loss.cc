#include "kernels/head_loss/head_loss.h"

#include "core/ref.h"
#include "kernels/head_loss/head_loss_ref.h"
#include "kernels/head_loss/head_loss_rows.h"
#include "math/blocks.h"
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

void run_ref(Ctx&, const HeadLoss& op, std::span<std::byte>) {
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
      head_loss_ref(vocab, depth, row, w, target, static_cast<double>(op.z), loss[i], lse[i], g.data());
      const double upstream = target < 0 ? 0 : weights.empty() ? 1 : weights[i];
      for (int64_t v = 0; v < vocab && upstream != 0; ++v) {
        const double p = g[static_cast<size_t>(v)] * (1 + 2 * static_cast<double>(op.z) * lse[i]);
        const double dlogit = upstream * (p - (v == target ? 1 : 0));
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

// The row of a class.
template <packed::Class kClass>
struct Packed {
  static const char* supports(const HeadLoss& op) { return head_loss_packed_supports(kClass, op); }
  static int64_t workspace(const HeadLoss& op, int threads) { return head_loss_packed_workspace(kClass, op, threads); }
  static void run(Ctx& ctx, const HeadLoss& op, std::span<std::byte> space) {
    check_targets(op);
    head_loss_packed(kClass, ctx, op, space);
  }
  static constexpr Row<HeadLoss> row(const char* name, const char* numerics) {
    return {.name = name, .numerics = numerics, .supports = &supports, .workspace = &workspace, .run = &run};
  }
};

}  // namespace

std::span<const Row<HeadLoss>> HeadLoss::rows() {
  static constexpr Row<HeadLoss> kRows[] = {Packed<packed::Class::bf16_tile>::row("packed_tile", "bf16_tile_chain"),
                                            Packed<packed::Class::bf16_dot>::row("packed_dot", "bf16_dot_chain"),
                                            Packed<packed::Class::bf16>::row("packed_bf16", "bf16_chain"),
                                            Packed<packed::Class::f32>::row("packed_f32", "f32_chain"),
                                            {.name = "ref", .numerics = "f64", .run = &run_ref}};
  return kRows;
}

}  // namespace braid
