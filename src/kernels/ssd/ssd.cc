#include "kernels/ssd/ssd.h"

#include <array>

#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/ssd/ssd_ref.h"
#include "kernels/ssd/ssd_rows.h"
#include "kernels/ssd/ssd_stored.h"
#include "math/packed_rows.h"

namespace braid {
namespace {

template <class Op>
std::array<View, 1> states_of(const Op& op) {
  return {View(op.state)};
}
std::array<View, 2> states_of(const SsdBwd& op) { return {op.state, View(op.dstate)}; }

template <class Op>
void check_sequences(const Op& op) {
  const int64_t tokens = op.x.dim(0), heads = op.x.dim(1), groups = op.b.dim(1);
  CHECK(groups > 0 && heads % groups == 0, "{}: {} heads in {} groups", Op::name, heads, groups);
  CHECK(op.seqs, "{}: no sequences", Op::name);
  for (const Seq& seq : op.seqs->seqs) {
    CHECK(seq.start >= 0 && seq.len >= 0 && seq.start + seq.len <= tokens, "{}: rows {}+{} of {}", Op::name, seq.start,
          seq.len, tokens);
    CHECK(seq.pos0 >= 0, "{}: {} tokens before", Op::name, seq.pos0);
    for (const View& state : states_of(op)) {
      CHECK(!state || (seq.slot >= 0 && seq.slot < state.dim(0)), "{}: slot {} of {}", Op::name, seq.slot,
            state.dim(0));
    }
    if constexpr (requires { op.state_scales; }) {
      CHECK(static_cast<bool>(op.state_scales) == (op.state && op.state.dtype == DType::i8),
            "{}: scales belong to a state of I8", Op::name);
    }
    const bool fits = std::is_same_v<Op, SsdStep> ? op.seqs->trail_fits(seq, op.state.dim(0)) : seq.trail < 0;
    CHECK(fits, "{}: trail {} of {} tokens", Op::name, seq.trail, seq.len);
  }
}

template <class Op>
SsdShape shape_of(const Op& op) {
  return {.heads = op.x.dim(1),
          .width = op.x.dim(2),
          .groups = op.b.dim(1),
          .states = op.b.dim(2),
          .dt_min = static_cast<double>(op.dt_min),
          .dt_max = static_cast<double>(op.dt_max)};
}

// The values of a state of any type, and back: of slots [H, P, N] that are already rounded to their types.
template <class Op>
std::vector<double> states_from(const Op& op) {
  std::vector<double> values = to_doubles(op.state);
  const int64_t states = op.state_scales ? op.state.dim(3) : 1;
  for (int64_t i = 0; op.state_scales && i < std::ssize(values); ++i)
    values[static_cast<size_t>(i)] *= element(op.state_scales, i / states);
  return values;
}
template <class Op>
void states_to(const Op& op, int64_t slot, std::span<const double> values) {
  const int64_t states = op.state.dim(3), first = slot * std::ssize(values);
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    const double scale = op.state_scales ? element(op.state_scales, (first + i) / states) : 1;
    const double v = values[static_cast<size_t>(i)];
    set_element(op.state, first + i, op.state_scales ? (scale > 0 ? std::round(v / scale) : 0) : v);
  }
}

// Rounds the state of a slot to its type as after `position` tokens, and stores it.
template <class Op>
void store_state(const Op& op, int64_t slot, int64_t position, std::span<double> values) {
  const auto states = static_cast<size_t>(op.state.dim(3));
  for (size_t row = 0; op.state.dtype != DType::f32 && row * states < values.size(); ++row) {
    const double scale = store_row_ref(op.state.dtype, op.noise, position, static_cast<int64_t>(row),
                                       values.subspan(row * states, states));
    const int64_t rows = op.state.dim(1) * op.state.dim(2);
    if (op.state_scales) set_element(op.state_scales, slot * rows + static_cast<int64_t>(row), scale);
  }
  states_to(op, slot, values);
}

template <class Op>
void run_ref(Ctx&, const Op& op, std::span<std::byte>) {
  check_sequences(op);
  const SsdShape shape = shape_of(op);
  const std::vector<double> x = to_doubles(op.x), b = to_doubles(op.b), c = to_doubles(op.c), dt = to_doubles(op.dt),
                            dt_bias = to_doubles(op.dt_bias), a_log = to_doubles(op.a_log),
                            d_skip = to_doubles(op.d_skip);
  std::vector<double> state = states_from(op), y = to_doubles(op.y);
  const auto size = static_cast<size_t>(shape.heads * shape.width * shape.states);
  std::vector<double> nothing(size);
  const auto state_at = [&](int64_t slot) {
    return op.state ? std::span(state).subspan(static_cast<size_t>(slot) * size, size) : std::span(nothing);
  };
  for (const Seq& seq : op.seqs->seqs) {
    nothing.assign(size, 0);
    const int64_t most = std::is_same_v<Op, SsdStep> ? kSsdStepTokens : std::max<int64_t>(seq.len, 1);
    const int64_t piece = seq.trail < 0 ? most : 1;  // tokens from one state to the next
    for (int64_t t = 0; t < seq.len; t += piece) {
      const int64_t end = std::min(t + piece, seq.len), slot = op.seqs->slot_after(seq, t);
      const auto from = state_at(op.seqs->slot_before(seq, t)), to = state_at(slot);
      if (from.data() != to.data()) std::copy(from.begin(), from.end(), to.begin());
      ssd_ref<double>(shape, seq.start + t, seq.start + end, x, b, c, dt, dt_bias, a_log, d_skip, to, y);
      if (op.state) store_state(op, slot, seq.pos0 + end, to);
    }
  }
  store(op.y, y);
}

void bwd_ref(Ctx&, const SsdBwd& op, std::span<std::byte>) {
  check_sequences(op);
  const SsdShape shape = shape_of(op);
  const std::vector<double> dy = to_doubles(op.dy), x = to_doubles(op.x), b = to_doubles(op.b), c = to_doubles(op.c),
                            dt = to_doubles(op.dt), dt_bias = to_doubles(op.dt_bias), a_log = to_doubles(op.a_log),
                            d_skip = to_doubles(op.d_skip), state = to_doubles(op.state);
  const auto heads = static_cast<size_t>(shape.heads), size = static_cast<size_t>(shape.width * shape.states);
  const std::vector<double> nothing(size);
  std::vector<double> dstate = to_doubles(op.dstate);
  SsdGradients all{.x = to_doubles(op.dx), .b = to_doubles(op.db), .c = to_doubles(op.dc), .dt = to_doubles(op.ddt)};
  for (const Seq& seq : op.seqs->seqs) {
    all.dt_bias.assign(heads, 0);
    all.a_log.assign(heads, 0);
    all.d_skip.assign(heads, 0);
    const auto first = static_cast<size_t>(seq.start * shape.groups * shape.states),
               count = static_cast<size_t>(seq.len * shape.groups * shape.states);
    std::fill_n(all.b.begin() + static_cast<std::ptrdiff_t>(first), count, 0.0);
    std::fill_n(all.c.begin() + static_cast<std::ptrdiff_t>(first), count, 0.0);
    for (size_t h = 0; h < heads; ++h) {
      const size_t at = (static_cast<size_t>(seq.slot) * heads + h) * size;
      std::vector<double> left = nothing;
      ssd_bwd_ref(shape, seq.start, seq.start + seq.len, static_cast<int64_t>(h), dy, x, b, c, dt, dt_bias[h], a_log[h],
                  d_skip[h], op.state ? std::span(state).subspan(at, size) : nothing,
                  op.dstate ? std::span(dstate).subspan(at, size) : left, all);
    }
    accumulate(op.ddt_bias, all.dt_bias);
    accumulate(op.da_log, all.a_log);
    accumulate(op.dd_skip, all.d_skip);
  }
  store(op.dx, all.x);
  store(op.db, all.b);
  store(op.dc, all.c);
  store(op.ddt, all.dt);
  store(op.dstate, dstate);
}

// For the inputs that forward and backward share.
template <class Op>
const char* refuses_inputs(const Op& op) {
  for (const View& v : {op.dt_bias, op.a_log, op.d_skip}) {
    if (v.dtype != DType::f32) return "parameters are not all F32";
  }
  for (const View& v : {op.x, op.dt}) {
    if (v.dtype != DType::f32 && v.dtype != DType::bf16) return "x or dt is neither F32 nor BF16";
  }
  if (op.b.dtype != op.x.dtype || op.c.dtype != op.x.dtype) return "x, b and c differ in dtype";
  for (const View& v : {op.x, op.b, op.c, op.dt_bias, op.a_log, op.d_skip, View(op.state)}) {
    if (!v.rows_contiguous()) return "strided rows";
  }
  return nullptr;
}

template <class Op>
const char* hwy_supports(const Op& op) {
  const DType state = op.state.dtype;
  const bool stored = state == DType::bf16 || state == DType::f16 || state == DType::i8;
  if (op.state && state != DType::f32 && !(stored && op.state.dim(3) <= kStoredStatesMax)) return "type of the state";
  if (op.state_scales && !(op.state_scales.dtype == DType::f32 && op.state_scales.contiguous())) return "scales";
  if (op.y.dtype != DType::f32 && (op.y.dtype != DType::bf16 || std::is_same_v<Op, SsdStep>)) return "dtype of y";
  return op.y.rows_contiguous() ? refuses_inputs(op) : "strided rows";
}

// Heads and groups of a token are adjacent, and each token has a state.
const char* step_cuda_supports(const SsdStep& op) {
  if (op.y.dtype != DType::f32 || op.state.dtype != DType::f32 || !op.state.contiguous()) return "y or state";
  for (const View& v : {op.x, op.b, op.c, View(op.y)}) {
    if (!v.rows_contiguous() || v.stride(1) != v.dim(2)) return "strided rows";
  }
  if (op.dt.stride(1) != 1 || op.x.dim(1) % op.b.dim(1) != 0) return "strided dt, or heads that groups do not divide";
  if (!op.seqs) return op.x.dim(0) == 1 ? refuses_inputs(op) : "a sequence of several tokens";
  if (std::ssize(op.seqs->seqs) != op.x.dim(0) || op.x.dim(0) > op.state.dim(0)) return "tokens without a state";
  for (int64_t i = 0; i < std::ssize(op.seqs->seqs); ++i) {
    if (const Seq& s = op.seqs->seqs[static_cast<size_t>(i)]; s.len != 1 || s.start != i || s.slot != i || s.trail >= 0)
      return "not one token of each state, in order";
  }
  return refuses_inputs(op);
}

const char* bwd_hwy_supports(const SsdBwd& op) {
  if (op.state && op.state.dtype != DType::f32) return "state is not F32";
  if (op.dy.dtype != DType::f32 && op.dy.dtype != DType::bf16) return "dy is neither F32 nor BF16";
  for (const MutView& v : {op.dx, op.db, op.dc, op.ddt, op.ddt_bias, op.da_log, op.dd_skip, op.dstate}) {
    if (v.dtype != DType::f32) return "a gradient is not F32";
  }
  for (const View& v : {op.dy, View(op.dx), View(op.db), View(op.dc), View(op.dstate)}) {
    if (!v.rows_contiguous()) return "strided rows";
  }
  return refuses_inputs(op);
}

// Rows on packed blocks of tokens.
struct Packed {
  static const char* supports(packed::Class c, const SsdBwd& op) {
    if (op.x.dtype != DType::bf16) return "x is not BF16";
    if (const char* reason = packed::refusal(c)) return reason;
    return bwd_hwy_supports(op);
  }
  static int64_t workspace(packed::Class c, const SsdBwd& op, int threads) {
    const packed::Kernel kernel = packed::block_kernel_of(c);
    return ssd_bwd_workspace(&kernel, op, threads);
  }
  static void run(packed::Class c, Ctx& ctx, const SsdBwd& op, std::span<std::byte> space) {
    check_sequences(op);
    const packed::Kernel kernel = packed::block_kernel_of(c);
    ssd_bwd_blocks(&kernel, ctx, op, space);
  }
};

int64_t bwd_hwy_workspace(const SsdBwd& op, int threads) { return ssd_bwd_workspace(nullptr, op, threads); }
void bwd_hwy(Ctx& ctx, const SsdBwd& op, std::span<std::byte> workspace) {
  check_sequences(op);
  ssd_bwd_blocks(nullptr, ctx, op, workspace);
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

std::span<const Row<SsdBwd>> SsdBwd::rows() {
  static constexpr Row<SsdBwd> kRows[] = {
      packed::kBlockTileRow<SsdBwd, Packed>,
      packed::kBlockDotRow<SsdBwd, Packed>,
      {.name = "hwy",
       .numerics = "f32",
       .supports = &bwd_hwy_supports,
       .workspace = &bwd_hwy_workspace,
       .run = &bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

std::span<const Row<SsdStep>> SsdStep::rows() {
  static constexpr Row<SsdStep> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &step_cuda_supports,
       .run = kHasCuda ? &ssd_step_cuda : nullptr,
       .device = Device::cuda},
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports<SsdStep>, .run = &run_hwy<SsdStep, &ssd_step_hwy>},
      {.name = "ref", .numerics = "f64", .run = &run_ref<SsdStep>},
  };
  return kRows;
}

}  // namespace braid
