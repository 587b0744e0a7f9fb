#include "kernels/experts/experts.h"

#include "codec/codec.h"
#include "core/ref.h"
#include "kernels/experts/experts_ref.h"
#include "kernels/experts/experts_rows.h"
#include "math/packed_rows.h"
#include "math/panel.h"
#include "sys/machine.h"

namespace braid {
namespace {

// The slots of each expert, in order: references go expert by expert, so that each is decoded once.
std::vector<std::vector<int64_t>> slots_by_expert(const char* name, const View& experts, size_t count) {
  std::vector<std::vector<int64_t>> chosen_by(count);
  for (int64_t slot = 0; slot < experts.count(); ++slot) {
    const auto e = static_cast<int64_t>(element(experts, slot));
    CHECK(e >= -1 && e < static_cast<int64_t>(count), "{}: token {} has expert {} of {}", name, slot / experts.dim(1),
          e, count);
    if (e >= 0) chosen_by[static_cast<size_t>(e)].push_back(slot);
  }
  return chosen_by;
}

// One row of a saved product.
void store_row(const MutView& v, int64_t row, const std::vector<double>& values) {
  const auto width = static_cast<int64_t>(values.size());
  for (int64_t i = 0; v && i < width; ++i) set_element(v, row * width + i, values[static_cast<size_t>(i)]);
}
std::vector<double> load_row(const View& v, int64_t row, int64_t width) {
  std::vector<double> values(static_cast<size_t>(width));
  for (int64_t i = 0; i < width; ++i) values[static_cast<size_t>(i)] = element(v, row * width + i);
  return values;
}

void fwd_ref(Ctx&, const ExpertsFwd& op, std::span<std::byte>) {
  const int64_t width = op.x.dim(1), k = op.experts.dim(1);
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  const auto chosen_by = slots_by_expert(op.name, op.experts, op.up.size());
  for (size_t e = 0; e < chosen_by.size(); ++e) {
    if (chosen_by[e].empty()) continue;
    const auto up = decode(op.up[e]), down = decode(op.down[e]);
    const auto gate = op.gate.empty() ? std::vector<double>() : decode(op.gate[e]);
    for (const int64_t slot : chosen_by[e]) {
      const auto x = to_doubles(op.x.slice(0, slot / k, 1));
      const auto result = expert_ref(x, up, gate, down, op.act == ExpertAct::silu);
      for (int64_t r = 0; r < width; ++r)
        y[static_cast<size_t>(slot / k * width + r)] += element(op.weights, slot) * result[static_cast<size_t>(r)];
      if (op.u) store_row(op.u, slot, matrix_vector_ref(up, x));
      if (op.g) store_row(op.g, slot, matrix_vector_ref(gate, x));
    }
  }
  store(op.y, y);
}

// into [rows.size(), cols.size()] += rows cols^T
void add_outer(const std::vector<double>& rows, const std::vector<double>& cols, std::vector<double>& into) {
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < cols.size(); ++j) into[i * cols.size() + j] += rows[i] * cols[j];
  }
}

void bwd_ref_sequence(const ExpertsBwd& op) {
  const int64_t width = op.x.dim(1), hidden = op.up[0].rows, k = op.experts.dim(1);
  const bool gated = !op.gate.empty(), silu = op.act == ExpertAct::silu;
  std::vector<double> dx(static_cast<size_t>(op.x.count())), dweights(static_cast<size_t>(op.weights.count()));
  const auto chosen_by = slots_by_expert(op.name, op.experts, op.up.size());
  for (size_t e = 0; e < chosen_by.size(); ++e) {
    if (chosen_by[e].empty()) continue;
    const auto up = decode(op.up[e]), down = decode(op.down[e]);
    const auto gate = gated ? decode(op.gate[e]) : std::vector<double>();
    std::vector<double> dup(up.size()), dgate(gate.size()), ddown(down.size());
    for (const int64_t slot : chosen_by[e]) {
      const auto x = to_doubles(op.x.slice(0, slot / k, 1));
      auto dy = to_doubles(op.dy.slice(0, slot / k, 1));
      const auto u = op.u ? load_row(op.u, slot, hidden) : matrix_vector_ref(up, x);
      const auto g = !gated ? std::vector<double>() : op.g ? load_row(op.g, slot, hidden) : matrix_vector_ref(gate, x);
      const double weight = element(op.weights, slot);
      const ExpertSlotGradient slot_gradient = expert_bwd_ref(dy, weight, u, g, down, silu);
      dweights[static_cast<size_t>(slot)] = slot_gradient.dweight;
      const auto from_up = transposed_vector_ref(up, slot_gradient.du);
      const auto from_gate = gated ? transposed_vector_ref(gate, slot_gradient.dg) : std::vector<double>(x.size());
      for (size_t r = 0; r < x.size(); ++r) dx[static_cast<size_t>(slot / k * width) + r] += from_up[r] + from_gate[r];
      for (double& d : dy) d *= weight;
      add_outer(slot_gradient.du, x, dup);
      if (gated) add_outer(slot_gradient.dg, x, dgate);
      add_outer(dy, slot_gradient.hidden, ddown);
    }
    if (!op.dup.empty()) accumulate(op.dup[e], dup);
    if (!op.dgate.empty()) accumulate(op.dgate[e], dgate);
    if (!op.ddown.empty()) accumulate(op.ddown[e], ddown);
  }
  store(op.dx, dx);
  store(op.dweights, dweights);
}

void bwd_ref(Ctx&, const ExpertsBwd& op, std::span<std::byte>) {
  const SeqMap whole = SeqMap::one(op.x.dim(0));
  for (const Seq& seq : (op.seqs ? *op.seqs : whole).seqs) {
    ExpertsBwd part = op;
    for (View* v : {&part.dy, &part.x, &part.experts, &part.weights, &part.u, &part.g}) {
      if (*v) *v = v->slice(0, seq.start, seq.len);
    }
    part.dx = op.dx.slice(0, seq.start, seq.len);
    part.dweights = op.dweights.slice(0, seq.start, seq.len);
    bwd_ref_sequence(part);
  }
}

const char* rows_refusal(const ExpertsFwd& op) {
  const bool rows = op.x.rows_contiguous() && op.y.rows_contiguous() && op.weights.rows_contiguous();
  if (!rows || !op.experts.rows_contiguous()) return "strided rows";
  return (op.u && !op.u.rows_contiguous()) || (op.g && !op.g.rows_contiguous()) ? "strided rows" : nullptr;
}

template <const ProductEngine& kEngine>
const char* engine_supports(const ExpertsFwd& op) {
  if (op.x.dtype != kEngine.x) return "x is of another class";
  if (const char* reason = rows_refusal(op)) return reason;
  for (const auto list : {op.up, op.gate, op.down}) {
    for (const Weight& w : list) {
      if (const char* reason = kEngine.refusal(w)) return reason;
      if (kEngine.row_bytes && kEngine.row_bytes(w) != kEngine.row_bytes(list[0])) return "experts in several formats";
    }
  }
  return nullptr;
}

const char* dot_supports(const ExpertsFwd& op) {
  if (const char* reason = engine_supports<kPanelDot>(op)) return reason;
  return panel_class(DType::bf16) == PanelClass::bf16_dot ? nullptr : "slower than FP32 here";
}
const char* tiles_supports(const ExpertsFwd& op) { return op.train ? "training" : engine_supports<kTiles>(op); }
const char* codes_supports(const ExpertsFwd& op) {
  return op.codes == CodeDots::a16 ? engine_supports<kCodesA16>(op) : "not a step";
}
const char* a8_supports(const ExpertsFwd& op) {
  return op.codes == CodeDots::a8 ? engine_supports<kCodesA8>(op) : "activations are not rounded to 8 bits";
}

template <const ProductEngine& kEngine>
int64_t engine_workspace(const ExpertsFwd& op, int threads) {
  return experts_fwd_workspace({.engine = &kEngine}, op, threads);
}
template <const ProductEngine& kEngine>
void fwd_engine(Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> workspace) {
  experts_fwd_grouped({.engine = &kEngine}, ctx, op, workspace);
}

template <const ProductEngine& kEngine, const char* (*kSupports)(const ExpertsFwd& op)>
constexpr Row<ExpertsFwd> engine_row(const char* name, const char* numerics) {
  return {.name = name,
          .numerics = numerics,
          .supports = kSupports,
          .workspace = &engine_workspace<kEngine>,
          .run = &fwd_engine<kEngine>};
}

const char* packed_refusal(packed::Class c, DType x) {
  if ((x == DType::f32) != (c == packed::Class::f32)) return "x is of another class";
  return packed::refusal(c);
}

// Rows on packed operands, forward and backward.
struct Packed {
  static const char* supports(packed::Class c, const ExpertsFwd& op) {
    if (!op.train) return "not training";
    if (const char* reason = packed_refusal(c, op.x.dtype)) return reason;
    return rows_refusal(op);
  }
  static const char* supports(packed::Class c, const ExpertsBwd& op) {
    for (const View& v : {op.u, op.g}) {
      if (v && v.dtype != op.x.dtype) return "saved products of another type";
      if (v && !v.rows_contiguous()) return "strided rows";
    }
    if (op.dy.dtype != DType::f32 && op.dy.dtype != DType::bf16) return "dy is neither F32 nor BF16";
    for (const View& v : {View(op.dy), op.x, op.experts, op.weights, View(op.dx), View(op.dweights)}) {
      if (!v.rows_contiguous()) return "strided rows";
    }
    if (op.dx.dtype != DType::f32) return "dx is not F32";
    for (const auto list : {op.dup, op.dgate, op.ddown}) {
      for (const MutView& v : list) {
        if (v.dtype != DType::f32 || !v.rows_contiguous()) return "gradients are not rows of F32";
      }
    }
    return packed_refusal(c, op.x.dtype);
  }

  static int64_t workspace(packed::Class c, const ExpertsFwd& op, int threads) {
    const packed::Kernel kernel = packed::kernel_of(c);
    return experts_fwd_workspace({.packed = &kernel}, op, threads);
  }
  static int64_t workspace(packed::Class c, const ExpertsBwd& op, int threads) {
    return experts_bwd_workspace(packed::kernel_of(c), op, threads);
  }

  static void run(packed::Class c, Ctx& ctx, const ExpertsFwd& op, std::span<std::byte> space) {
    const packed::Kernel kernel = packed::kernel_of(c);
    experts_fwd_grouped({.packed = &kernel}, ctx, op, space);
  }
  static void run(packed::Class c, Ctx& ctx, const ExpertsBwd& op, std::span<std::byte> space) {
    experts_bwd_packed(packed::kernel_of(c), ctx, op, space);
  }
};

}  // namespace

std::span<const Row<ExpertsFwd>> ExpertsFwd::rows() {
  static constexpr Row<ExpertsFwd> kRows[] = {
      packed::kTileRow<ExpertsFwd, Packed>,
      packed::kDotRow<ExpertsFwd, Packed>,
      packed::kBf16Row<ExpertsFwd, Packed>,
      packed::kF32Row<ExpertsFwd, Packed>,
      engine_row<kCodesA16, &codes_supports>("grouped_codes", "codes_a16"),
      engine_row<kTiles, &tiles_supports>("grouped_tiles", "bf16_tile"),
      engine_row<kCodesA8, &a8_supports>("grouped_a8", "codes_a8"),
      engine_row<kPanelDot, &dot_supports>("grouped_dot", "bf16_dot"),
      engine_row<kPanelBf16, &engine_supports<kPanelBf16>>("grouped_bf16", "bf16"),
      engine_row<kPanelF32, &engine_supports<kPanelF32>>("grouped_f32", "f32"),
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<ExpertsBwd>> ExpertsBwd::rows() {
  static constexpr Row<ExpertsBwd> kRows[] = {packed::kTileRow<ExpertsBwd, Packed>,
                                              packed::kDotRow<ExpertsBwd, Packed>,
                                              packed::kBf16Row<ExpertsBwd, Packed>,
                                              packed::kF32Row<ExpertsBwd, Packed>,
                                              {.name = "ref", .numerics = "f64", .run = &bwd_ref}};
  return kRows;
}

}  // namespace braid
