#include "kernels/act/act.h"

#include "core/ref.h"
#include "kernels/act/act_ref.h"
#include "kernels/act/act_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const ActFwd& op, std::span<std::byte>) {
  const std::vector<double> x = to_doubles(op.x), gate = to_doubles(op.gate);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = gate.empty() ? act_ref(op.kind, x[i]) : act_ref(op.kind, gate[i]) * x[i];
  store(op.y, y);
}

void bwd_ref(Ctx&, const ActBwd& op, std::span<std::byte>) {
  check_gate(op);
  const std::vector<double> dy = to_doubles(op.dy), x = to_doubles(op.x), gate = to_doubles(op.gate);
  std::vector<double> dx(x.size()), dgate(gate.size());
  for (size_t i = 0; i < x.size(); ++i) {
    dx[i] = dy[i] * (gate.empty() ? act_slope_ref(op.kind, x[i]) : act_ref(op.kind, gate[i]));
    if (!gate.empty()) dgate[i] = dy[i] * x[i] * act_slope_ref(op.kind, gate[i]);
  }
  store(op.dx, dx);
  store(op.dgate, dgate);
}

const char* hwy_supports(const ActFwd& op) {
  const bool plain = op.x.rows_contiguous() && op.y.rows_contiguous() && (!op.gate || op.gate.rows_contiguous());
  if (op.gate && op.gate.dtype != op.x.dtype) return "x and gate differ in dtype";
  return plain ? nullptr : "strided rows";
}

const char* bwd_supports(const ActBwd& op) {
  const bool plain = op.dy.rows_contiguous() && op.x.rows_contiguous() && op.dx.rows_contiguous() &&
                     (!op.gate || (op.gate.rows_contiguous() && op.dgate.rows_contiguous()));
  if (op.gate && (op.gate.dtype != op.x.dtype || op.dgate.dtype != op.dx.dtype)) return "x and gate differ in dtype";
  return plain ? nullptr : "strided rows";
}

}  // namespace

void check_gate(const ActBwd& op) { CHECK(!op.gate == !op.dgate, "{}: gate and dgate come together", ActBwd::name); }

std::span<const Row<ActFwd>> ActFwd::rows() {
  static constexpr Row<ActFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &act_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<ActBwd>> ActBwd::rows() {
  static constexpr Row<ActBwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &bwd_supports, .run = &act_bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
