#include "kernels/ssd/ssd.h"

#include "core/ref.h"
#include "kernels/ssd/ssd_ref.h"
#include "kernels/ssd/ssd_rows.h"

namespace braid {
namespace {

template <class Op>
void check_sequences(const Op& op) {
  const int64_t tokens = op.x.dim(0), heads = op.x.dim(1), groups = op.b.dim(1), slots = op.state.dim(0);
  CHECK(groups > 0 && heads % groups == 0, "{}: {} heads in {} groups", Op::name, heads, groups);
  CHECK(op.seqs, "{}: no sequences", Op::name);
  for (const Seq& seq : op.seqs->seqs) {
    CHECK(seq.start >= 0 && seq.len >= 0 && seq.start + seq.len <= tokens, "{}: rows {}+{} of {}", Op::name, seq.start,
          seq.len, tokens);
    CHECK(seq.pos0 >= 0 && seq.slot >= 0 && seq.slot < slots, "{}: slot {} of {}", Op::name, seq.slot, slots);
  }
}

template <class Op>
void run_ref(Ctx&, const Op& op, std::span<std::byte>) {
  check_sequences(op);
  const SsdShape shape{.heads = op.x.dim(1),
                       .width = op.x.dim(2),
                       .groups = op.b.dim(1),
                       .states = op.b.dim(2),
                       .dt_min = static_cast<double>(op.dt_min),
                       .dt_max = static_cast<double>(op.dt_max)};
  const std::vector<double> x = to_doubles(op.x), b = to_doubles(op.b), c = to_doubles(op.c), dt = to_doubles(op.dt),
                            dt_bias = to_doubles(op.dt_bias), a_log = to_doubles(op.a_log),
                            d_skip = to_doubles(op.d_skip);
  std::vector<double> state = to_doubles(op.state), y = to_doubles(op.y);
  const auto size = static_cast<size_t>(shape.heads * shape.width * shape.states);
  for (const Seq& seq : op.seqs->seqs) {
    ssd_ref<double>(shape, seq.start, seq.start + seq.len, x, b, c, dt, dt_bias, a_log, d_skip,
                    std::span(state).subspan(static_cast<size_t>(seq.slot) * size, size), y);
  }
  store(op.state, state);
  store(op.y, y);
}

template <class Op>
const char* hwy_supports(const Op& op) {
  for (const View& v : {op.dt, op.dt_bias, op.a_log, op.d_skip, View(op.state), View(op.y)}) {
    if (v.dtype != DType::f32) return "dt, parameters, state and y are not all F32";
  }
  if (op.x.dtype != DType::f32 && op.x.dtype != DType::bf16) return "x is neither F32 nor BF16";
  if (op.b.dtype != op.x.dtype || op.c.dtype != op.x.dtype) return "x, b and c differ in dtype";
  for (const View& v : {op.x, op.b, op.c, op.dt_bias, op.a_log, op.d_skip, View(op.state), View(op.y)}) {
    if (!v.rows_contiguous()) return "strided rows";
  }
  return nullptr;
}

template <class Op, void (*kRun)(Ctx&, const Op&, std::span<std::byte>)>
void run_hwy(Ctx& ctx, const Op& op, std::span<std::byte> workspace) {
  check_sequences(op);
  kRun(ctx, op, workspace);
}

}  // namespace

std::span<const Row<SsdFwd>> SsdFwd::rows() {
  static constexpr Row<SsdFwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &hwy_supports<SsdFwd>,
       .workspace = &ssd_fwd_hwy_workspace,
       .run = &run_hwy<SsdFwd, &ssd_fwd_hwy>},
      {.name = "ref", .numerics = "f64", .run = &run_ref<SsdFwd>},
  };
  return kRows;
}

std::span<const Row<SsdStep>> SsdStep::rows() {
  static constexpr Row<SsdStep> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports<SsdStep>, .run = &run_hwy<SsdStep, &ssd_step_hwy>},
      {.name = "ref", .numerics = "f64", .run = &run_ref<SsdStep>},
  };
  return kRows;
}

}  // namespace braid
