#include "kernels/quantize/low_experts.h"

#include "codec/codec.h"
#include "kernels/quantize/low_experts_ref.h"
#include "kernels/quantize/low_experts_rows.h"
#include "math/packed_rows.h"

namespace braid {
namespace {

// What one expert computes for the rows that chose it.
template <class Op>
struct ExpertRef {
  const Op& op;
  size_t e;
  std::vector<int64_t> slots{};
  MatrixRef x{}, u{}, g{}, hidden{};

  ExpertRef(const Op& problem, size_t expert) : op(problem), e(expert) {
    for (int64_t i = 0; i < op.experts.count(); ++i) {
      const auto chosen = static_cast<int64_t>(element(op.experts, i));
      CHECK(chosen >= 0 && chosen < std::ssize(op.up), "{}: slot {} has expert {}", op.name, i, chosen);
      if (chosen == static_cast<int64_t>(e)) slots.push_back(i);
    }
    x = gathered(op.x);
    u = forward(x, op.up[e]);
    if (!op.gate.empty()) g = forward(x, op.gate[e]);
    hidden = u;
    for (size_t i = 0; i < u.v.size(); ++i) {
      const auto a = static_cast<double>(u.v[i]);
      const double h =
          op.gate.empty() ? act_ref(a, op.silu, false) : act_ref(static_cast<double>(g.v[i]), op.silu, false) * a;
      hidden.v[i] = static_cast<float>(h);
      if (op.x.dtype == DType::bf16) hidden.v[i] = to_float(to_bf16(hidden.v[i]));
    }
  }
  int64_t token(size_t i) const { return slots[i] / op.experts.dim(1); }

  MatrixRef gathered(const View& from) const {
    MatrixRef rows = matrix_ref(std::ssize(slots), from.dim(1));
    for (size_t i = 0; i < slots.size(); ++i) {
      for (int64_t c = 0; c < rows.cols; ++c)
        rows.at(static_cast<int64_t>(i), c) = static_cast<float>(element(from, token(i) * from.dim(1) + c));
    }
    return rows;
  }
  MatrixRef weighted(MatrixRef rows) const {
    for (size_t i = 0; i < slots.size(); ++i) {
      for (int64_t c = 0; c < rows.cols; ++c)
        rows.at(static_cast<int64_t>(i), c) *= static_cast<float>(element(op.weights, slots[i]));
    }
    return rows;
  }
  MatrixRef forward(const MatrixRef& rows, const Weight& w) const {
    return product_ref(operand_ref(op.specs.forward_x, rows, op.x.dtype), false,
                       operand_ref(op.specs.forward_w, matrix_ref(w.codes), op.x.dtype), false);
  }
  MatrixRef backward_data(const MatrixRef& dy, const Weight& w, uint32_t stream) const {
    return product_ref(operand_ref(op.specs.data_dy, dy, op.x.dtype, noise(stream)), false,
                       operand_ref(op.specs.data_w, matrix_ref(w.codes), op.x.dtype), true);
  }
  void backward_weight(const MatrixRef& dy, const MatrixRef& from, uint32_t stream,
                       std::span<const MutView> into) const {
    if (into.empty()) return;
    const MatrixRef dw = product_ref(operand_ref(op.specs.weight_dy, dy, op.x.dtype, noise(stream + 1)), true,
                                     operand_ref(op.specs.weight_x, from, op.x.dtype), true);
    accumulate(into[e], {dw.v.begin(), dw.v.end()});
  }
  Noise noise(uint32_t stream) const {
    return {.key = {.seed = op.noise.seed, .stream = stream + 2 * static_cast<uint32_t>(e)}};
  }
};

void fwd_ref(Ctx&, const LowExpertsFwd& op, std::span<std::byte>) {
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  for (size_t e = 0; e < op.up.size(); ++e) {
    const ExpertRef<LowExpertsFwd> expert(op, e);
    const MatrixRef out = expert.weighted(expert.forward(expert.hidden, op.down[e]));
    for (size_t i = 0; i < expert.slots.size(); ++i) {
      for (int64_t c = 0; c < out.cols; ++c)
        y[static_cast<size_t>(expert.token(i) * out.cols + c)] +=
            static_cast<double>(out.at(static_cast<int64_t>(i), c));
    }
  }
  store(op.y, y);
}

void bwd_ref(Ctx&, const LowExpertsBwd& op, std::span<std::byte>) {
  std::vector<double> dx(static_cast<size_t>(op.dx.count())), dweights(static_cast<size_t>(op.dweights.count()));
  for (size_t e = 0; e < op.up.size(); ++e) {
    const ExpertRef<LowExpertsBwd> expert(op, e);
    const MatrixRef dy = expert.gathered(op.dy);
    MatrixRef du = expert.backward_data(dy, op.down[e], op.noise.down);
    for (size_t i = 0; i < expert.slots.size(); ++i) {
      for (int64_t f = 0; f < du.cols; ++f)
        dweights[static_cast<size_t>(expert.slots[i])] +=
            static_cast<double>(du.at(static_cast<int64_t>(i), f)) *
            static_cast<double>(expert.hidden.at(static_cast<int64_t>(i), f));
    }
    expert.backward_weight(expert.weighted(dy), expert.hidden, op.noise.down, op.ddown);
    du = expert.weighted(du);
    MatrixRef dg = du;
    for (size_t i = 0; i < du.v.size(); ++i) {
      const auto d = static_cast<double>(du.v[i]), u = static_cast<double>(expert.u.v[i]);
      const double g = op.gate.empty() ? 0 : static_cast<double>(expert.g.v[i]);
      du.v[i] = static_cast<float>(d * (op.gate.empty() ? act_ref(u, op.silu, true) : act_ref(g, op.silu, false)));
      dg.v[i] = static_cast<float>(d * act_ref(g, op.silu, true) * u);
    }
    MatrixRef part = expert.backward_data(du, op.up[e], op.noise.up);
    expert.backward_weight(du, expert.x, op.noise.up, op.dup);
    if (!op.gate.empty()) {
      const MatrixRef more = expert.backward_data(dg, op.gate[e], op.noise.gate);
      for (size_t i = 0; i < part.v.size(); ++i) part.v[i] += more.v[i];
      expert.backward_weight(dg, expert.x, op.noise.gate, op.dgate);
    }
    for (size_t i = 0; i < expert.slots.size(); ++i) {
      for (int64_t c = 0; c < part.cols; ++c)
        dx[static_cast<size_t>(expert.token(i) * part.cols + c)] +=
            static_cast<double>(part.at(static_cast<int64_t>(i), c));
    }
  }
  store(op.dx, dx);
  store(op.dweights, dweights);
}

// Rows of both directions.
struct Packed {
  template <class Op>
  static const char* supports(packed::Class c, const Op& op) {
    if ((op.x.dtype == DType::f32) != (c == packed::Class::f32)) return "x has another type";
    for (const auto list : {op.up, op.gate, op.down}) {
      for (const Weight& w : list) {
        if (!codec_of(w).in_place) return "weights of another format";
      }
    }
    if (!op.x.rows_contiguous() || !op.experts.rows_contiguous() || !op.weights.rows_contiguous())
      return "strided rows";
    if constexpr (std::is_same_v<Op, LowExpertsBwd>) {
      if (op.dx.dtype != DType::f32 || !op.dx.rows_contiguous() || !op.dy.rows_contiguous()) return "strided rows";
      if (!op.dweights.rows_contiguous()) return "strided rows";
      for (const auto list : {op.dup, op.dgate, op.ddown}) {
        for (const MutView& v : list) {
          if (v.dtype != DType::f32 || !v.rows_contiguous()) return "gradients are not rows of F32";
        }
      }
    } else if (!op.y.rows_contiguous()) {
      return "strided rows";
    }
    return packed::refusal(c);
  }
  template <class Op>
  static int64_t workspace(packed::Class c, const Op& op, int threads) {
    return low_experts_workspace(c, op, threads);
  }
  template <class Op>
  static void run(packed::Class c, Ctx& ctx, const Op& op, std::span<std::byte> space) {
    low_experts(c, ctx, op, space);
  }
};

}  // namespace

std::span<const Row<LowExpertsFwd>> LowExpertsFwd::rows() {
  static constexpr Row<LowExpertsFwd> kRows[] = {packed::kTileRow<LowExpertsFwd, Packed>,
                                                 packed::kDotRow<LowExpertsFwd, Packed>,
                                                 packed::kBf16Row<LowExpertsFwd, Packed>,
                                                 packed::kF32Row<LowExpertsFwd, Packed>,
                                                 {.name = "ref", .numerics = "f64", .run = &fwd_ref}};
  return kRows;
}

std::span<const Row<LowExpertsBwd>> LowExpertsBwd::rows() {
  static constexpr Row<LowExpertsBwd> kRows[] = {packed::kTileRow<LowExpertsBwd, Packed>,
                                                 packed::kDotRow<LowExpertsBwd, Packed>,
                                                 packed::kBf16Row<LowExpertsBwd, Packed>,
                                                 packed::kF32Row<LowExpertsBwd, Packed>,
                                                 {.name = "ref", .numerics = "f64", .run = &bwd_ref}};
  return kRows;
}

}  // namespace braid
