#include "kernels/muon/muon.h"

#include "core/ref.h"
#include "kernels/muon/muon_ref.h"
#include "kernels/muon/muon_rows.h"

namespace braid {
namespace {

void direction_ref(Ctx&, const MuonDirection& op, std::span<std::byte>) {
  std::vector<double> g = to_doubles(op.g), m = to_doubles(op.m);
  for (size_t i = 0; i < g.size(); ++i) {
    g[i] *= op.grad_scale;
    m[i] += (1 - op.momentum) * (g[i] - m[i]);
    g[i] = op.nesterov ? g[i] + op.momentum * (m[i] - g[i]) : m[i];
  }
  store(op.g, g);
  store(op.m, m);
}

void orthogonalize_ref(Ctx&, const Orthogonalize& op, std::span<std::byte>) {
  const NewtonSchulz iteration{
      .steps = Orthogonalize::kSteps, .a = Orthogonalize::kA, .b = Orthogonalize::kB, .c = Orthogonalize::kC};
  store(op.x, orthogonal_ref(iteration, to_doubles(op.x), static_cast<size_t>(op.x.dim(0))));
}

void apply_ref(Ctx&, const MuonApply& op, std::span<std::byte>) {
  std::vector<double> w = to_doubles(op.w);
  const std::vector<double> x = to_doubles(op.x);
  for (size_t i = 0; i < w.size(); ++i) w[i] = w[i] * (1 - op.lr * op.weight_decay) - op.lr * op.scale * x[i];
  store(op.w, w);
  store(op.working, w);
}

const char* is_f32_rows(const View& v) {
  if (v.dtype != DType::f32) return "not F32";
  return v.rows_contiguous() ? nullptr : "strided rows";
}

const char* direction_supports(const MuonDirection& op) {
  const char* why = is_f32_rows(op.g);
  return why ? why : is_f32_rows(op.m);
}

const char* orthogonalize_supports(const Orthogonalize& op) { return is_f32_rows(op.x); }

const char* apply_supports(const MuonApply& op) {
  for (const View& v : {op.x, View(op.w)}) {
    if (const char* why = is_f32_rows(v)) return why;
  }
  if (!op.working) return nullptr;
  return op.working.dtype == DType::bf16 && op.working.rows_contiguous() ? nullptr : "working copy is not BF16 rows";
}

}  // namespace

std::span<const Row<MuonDirection>> MuonDirection::rows() {
  static constexpr Row<MuonDirection> kRows[] = {
      {.name = "rows_f32", .numerics = "f32", .supports = &direction_supports, .run = &muon_direction_rows},
      {.name = "ref", .numerics = "f64", .run = &direction_ref},
  };
  return kRows;
}

std::span<const Row<Orthogonalize>> Orthogonalize::rows() {
  static constexpr Row<Orthogonalize> kRows[] = {
      {.name = "packed_f32",
       .numerics = "f32_chain",
       .supports = &orthogonalize_supports,
       .workspace = &orthogonalize_workspace,
       .run = &orthogonalize_packed},
      {.name = "ref", .numerics = "f64", .run = &orthogonalize_ref},
  };
  return kRows;
}

std::span<const Row<MuonApply>> MuonApply::rows() {
  static constexpr Row<MuonApply> kRows[] = {
      {.name = "rows_f32", .numerics = "f32", .supports = &apply_supports, .run = &muon_apply_rows},
      {.name = "ref", .numerics = "f64", .run = &apply_ref},
  };
  return kRows;
}

}  // namespace braid
