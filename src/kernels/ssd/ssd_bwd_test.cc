// Gradients of the scan: the reference against complex steps of the forward reference, and every row against the
// reference. Tolerance as in forward: largest error over the root mean square.
#include <cstring>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/ssd/ssd.h"
#include "kernels/ssd/ssd_ref.h"
#include "kernels/ssd/ssd_rows.h"
#include "math/packed.h"
#include "support/run_here.h"

namespace braid {
namespace {

using support::run_here;

constexpr double kTolerance = 1e-4, kBf16Tolerance = 0.05;

struct Case {
  std::vector<int64_t> lengths;
  int64_t heads, width, groups, states, chunk = 128;
  DType type = DType::f32;
  bool carried = true;            // a state before and a gradient of the one after
  std::vector<int64_t> before{};  // tokens already in the state, for the grid; empty: none
};

SeqMap map_of(const Case& c) {
  SeqMap seqs;  // slots in reverse: a sequence is not where its state is
  for (size_t i = 0; i < c.lengths.size(); ++i)
    seqs.add(c.lengths[i], c.before.empty() ? 0 : c.before[i], std::ssize(c.lengths) - 1 - static_cast<int64_t>(i));
  return seqs;
}

// x, b, c are slices of one row and so are their gradients; dt of the other.
struct Problem {
  Case shape;
  SeqMap seqs;
  TestTensor dy, fused, dt, dt_bias, a_log, d_skip, state, dfused, ddt, ddt_bias, da_log, dd_skip, dstate;
  float dt_min = 0, dt_max = std::numeric_limits<float>::infinity();
  explicit Problem(const Case& c, double dt_scale = 1, double dt_shift = -1)
      : shape(c),
        seqs(map_of(c)),
        dy(c.type, {seqs.tokens(), c.heads, c.width}, 11),
        fused(c.type, {seqs.tokens(), c.heads * c.width + 2 * c.groups * c.states}, 1),
        dt(c.type, {seqs.tokens(), c.heads + 3}, 2, dt_scale, dt_shift),
        dt_bias(DType::f32, {c.heads}, 3, 0.5),
        a_log(DType::f32, {c.heads}, 4, 0.8, 0.5),
        d_skip(DType::f32, {c.heads}, 5),
        state(DType::f32, {std::ssize(c.lengths), c.heads, c.width, c.states}, 6),
        dfused(DType::f32, fused.shape, 7),
        ddt(DType::f32, dt.shape, 8),
        ddt_bias(DType::f32, {c.heads}, 9),
        da_log(DType::f32, {c.heads}, 10),
        dd_skip(DType::f32, {c.heads}, 12),
        dstate(DType::f32, state.shape, 13) {}
  SsdBwd op() {
    const int64_t inner = shape.heads * shape.width, outer = shape.groups * shape.states;
    const auto part = [&](const auto& row, int64_t at, int64_t n, int64_t width) {
      return row.slice(1, at, n * width).split_last(n, width);
    };
    return {.dy = dy.view(),
            .x = part(fused.view(), 0, shape.heads, shape.width),
            .b = part(fused.view(), inner, shape.groups, shape.states),
            .c = part(fused.view(), inner + outer, shape.groups, shape.states),
            .dt = dt.view().slice(1, 2, shape.heads),
            .dt_bias = dt_bias.view(),
            .a_log = a_log.view(),
            .d_skip = d_skip.view(),
            .state = shape.carried ? state.view() : View(),
            .dx = part(dfused.mut(), 0, shape.heads, shape.width),
            .db = part(dfused.mut(), inner, shape.groups, shape.states),
            .dc = part(dfused.mut(), inner + outer, shape.groups, shape.states),
            .ddt = ddt.mut().slice(1, 2, shape.heads),
            .ddt_bias = ddt_bias.mut(),
            .da_log = da_log.mut(),
            .dd_skip = dd_skip.mut(),
            .dstate = shape.carried ? dstate.mut() : MutView(),
            .seqs = &seqs,
            .chunk = shape.chunk,
            .dt_min = dt_min,
            .dt_max = dt_max};
  }
};

using Complex = std::complex<double>;

// L = <dy, y> + <dstate, state after> as a function of every input, one after the other.
Complex loss_of(const SsdBwd& op, const std::vector<Complex>& inputs) {
  const SsdShape shape{.heads = op.x.dim(1),
                       .width = op.x.dim(2),
                       .groups = op.b.dim(1),
                       .states = op.b.dim(2),
                       .dt_min = static_cast<double>(op.dt_min),
                       .dt_max = static_cast<double>(op.dt_max)};
  size_t used = 0;
  const auto take = [&](const View& v) {
    const size_t first = used;
    used += static_cast<size_t>(v.count());
    return std::vector<Complex>(inputs.begin() + static_cast<std::ptrdiff_t>(first),
                                inputs.begin() + static_cast<std::ptrdiff_t>(used));
  };
  const auto x = take(op.x), b = take(op.b), c = take(op.c), dt = take(op.dt), dt_bias = take(op.dt_bias),
             a_log = take(op.a_log), d_skip = take(op.d_skip);
  std::vector<Complex> state = take(op.state), y(x.size());
  const auto size = static_cast<size_t>(shape.heads * shape.width * shape.states);
  for (const Seq& seq : op.seqs->seqs) {
    ssd_ref<Complex>(shape, seq.start, seq.start + seq.len, x, b, c, dt, dt_bias, a_log, d_skip,
                     std::span(state).subspan(static_cast<size_t>(seq.slot) * size, size), y);
  }
  Complex loss = 0;
  for (size_t i = 0; i < y.size(); ++i) loss += element(op.dy, static_cast<int64_t>(i)) * y[i];
  for (size_t i = 0; i < state.size(); ++i) loss += element(op.dstate, static_cast<int64_t>(i)) * state[i];
  return loss;
}

void expect_derivative(Problem& p) {
  const SsdBwd op = p.op();
  std::vector<double> inputs;
  for (const View& v : {op.x, op.b, op.c, op.dt, op.dt_bias, op.a_log, op.d_skip, op.state}) {
    const auto more = to_doubles(v);
    inputs.insert(inputs.end(), more.begin(), more.end());
  }
  const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& z) { return loss_of(op, z); });
  for (const View& v : {View(op.ddt_bias), View(op.da_log), View(op.dd_skip)}) {
    for (int64_t i = 0; i < v.count(); ++i)
      set_element(MutView(const_cast<std::byte*>(v.data), v.dtype, v.shape), i, 0);
  }
  Arena arena;
  Ctx ctx{.arena = arena};
  run_row(ctx, op, SsdBwd::rows().back());
  size_t at = 0;
  const char* names[] = {"dx", "db", "dc", "ddt", "ddt_bias", "da_log", "dd_skip", "dstate"};
  const View results[] = {op.dx, op.db, op.dc, op.ddt, op.ddt_bias, op.da_log, op.dd_skip, op.dstate};
  for (size_t k = 0; k < std::size(results); ++k) {
    for (int64_t i = 0; i < results[k].count(); ++i, ++at) {
      EXPECT_NEAR(element(results[k], i), gradient[at], 1e-5 * std::max(1.0, std::fabs(gradient[at])))
          << names[k] << " " << i;
    }
  }
}

TEST(SsdBwd, TheReferenceIsTheDerivative) {
  Problem p({{3, 0, 1, 4}, 4, 3, 2, 2});
  expect_derivative(p);
  Problem clamped({{4, 2}, 2, 2, 1, 3}, 3, 0);
  clamped.dt_min = 0.3f;
  clamped.dt_max = 0.9f;
  expect_derivative(clamped);
}

TEST(SsdBwd, EveryRowAgreesWithTheReference) {
  const Case cases[] = {{{70, 0, 1, 33}, 4, 16, 2, 24, 32},  // ragged
                        {{37, 9}, 6, 80, 2, 96, 16},         // P = 80, N = 96, three heads a group
                        {{40}, 2, 64, 1, 128, 64, DType::bf16},
                        {{29, 3}, 3, 13, 3, 7, 8},  // nothing divides anything
                        {{5}, 1, 1, 1, 1, 4},       // the smallest
                        {{1, 1, 1}, 4, 20, 2, 12},  // single tokens
                        {{50, 20}, 4, 20, 1, 33, 16, DType::bf16, false},
                        {{20, 30}, 5, 80, 1, 33, 16, DType::f32, true, {13, 32}},
                        {{300}, 2, 16, 2, 20, 256, DType::f32, false}};
  for (const Case& c : cases) sweep(Problem(c).op(), kTolerance, kBf16Tolerance);
}

// The rows of packed blocks: against the reference, and the sequences one by one.
void agrees_with_every_cut(const packed::Kernel& tiles) {
  const auto run_tiles = [&](const SsdBwd& op, int threads) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    // NaN: no product may read what it did not write.
    std::vector<float> space(static_cast<size_t>(ssd_bwd_workspace(&tiles, op, threads)) / sizeof(float),
                             std::numeric_limits<float>::quiet_NaN());
    ssd_bwd_blocks(&tiles, ctx, op, std::as_writable_bytes(std::span(space)));
  };
  for (const Case& c : {Case{{70, 0, 1, 33}, 4, 16, 2, 24, 32, DType::bf16},
                        {{37, 9}, 6, 80, 2, 96, 16, DType::bf16},
                        {{29, 3}, 3, 13, 3, 7, 8, DType::bf16},
                        {{130, 64}, 4, 64, 1, 64, 64, DType::bf16, false}}) {
    Problem want(c);
    OwnOutputs<SsdBwd> reference(want.op()), once(want.op()), cut(want.op());
    Arena arena;
    Ctx ctx{.arena = arena};
    run_row(ctx, reference.op(), SsdBwd::rows().back());
    run_tiles(once.op(), 2);
    expect_outputs(once.op(), reference.op(), kBf16Tolerance, false, "packed blocks");
    for (const Seq& seq : want.seqs.seqs) {
      const SeqMap alone = SeqMap::one(seq.len, seq.pos0, seq.slot);
      SsdBwd op = cut.op();
      for (View* v : {&op.dy, &op.x, &op.b, &op.c, &op.dt}) *v = v->slice(0, seq.start, seq.len);
      for (MutView* v : {&op.dx, &op.db, &op.dc, &op.ddt}) *v = v->slice(0, seq.start, seq.len);
      op.seqs = &alone;
      run_tiles(op, 1);
    }
    expect_outputs(cut.op(), once.op(), 0, true, "cut");
  }
}

// Over software tiles on any machine, and with dots where the CPU has them.
TEST(SsdBwd, PackedBlocksAgreeWithTheReferenceAndWithEveryCut) {
  agrees_with_every_cut(packed::soft_tile_bf16());
  if (!packed::refusal(packed::Class::bf16_dot))
    agrees_with_every_cut(packed::block_kernel_of(packed::Class::bf16_dot));
}

TEST(SsdBwd, ClampedStepsHaveNoSlope) {
  Problem p({{40}, 2, 8, 1, 16, 8}, 3, 0);
  p.dt_min = 0.3f;
  p.dt_max = 0.9f;
  sweep(p.op(), kTolerance);
  run_here(p.op(), 2);
  int64_t still = 0;
  for (int64_t i = 0; i < 80; ++i) still += element(p.op().ddt, i) == 0;
  EXPECT_GT(still, 20);
  EXPECT_LT(still, 80);
}

// Decays of e^-1e6 and steps of 1e4: nothing overflows.
TEST(SsdBwd, ExtremesStayFinite) {
  for (const auto& [scale, shift] : {std::pair{3000.0, 5000.0}, {4000.0, 0.0}, {1.0, -1e4}, {5.0, 0.0}}) {
    Problem p({{70}, 4, 16, 2, 32, 64}, scale, shift);
    set_element(p.a_log.mut(), 0, 5);
    set_element(p.a_log.mut(), 1, -8);
    sweep(p.op(), kTolerance);
  }
}

// Fused gradients: a row must not write outside its columns.
TEST(SsdBwd, WritesItsColumnsOnly) {
  Problem p({{9, 4}, 4, 12, 2, 8, 4});
  for (int64_t i = 0; i < p.ddt.view().count(); ++i) set_element(p.ddt.mut(), i, 77);
  run_here(p.op(), 2);
  for (int64_t t = 0; t < 13; ++t) {
    for (int64_t column : {0, 1, 6}) EXPECT_EQ(element(p.ddt.view(), t * 7 + column), 77);
  }
}

// One call with all sequences, and a call per sequence: the same bits, parameter gradients included.
TEST(SsdBwd, CutsBetweenSequencesChangeNoBit) {
  const Case shape{{21, 0, 40, 1}, 4, 20, 2, 24, 16};
  Problem whole(shape), parts(shape);
  run_here(whole.op(), 1);
  for (const Seq& seq : parts.seqs.seqs) {
    const SeqMap one = SeqMap::one(seq.len, seq.pos0, seq.slot);
    SsdBwd op = parts.op();
    for (View* v : {&op.dy, &op.x, &op.b, &op.c, &op.dt}) *v = v->slice(0, seq.start, seq.len);
    for (MutView* v : {&op.dx, &op.db, &op.dc, &op.ddt}) *v = v->slice(0, seq.start, seq.len);
    op.seqs = &one;
    run_here(op, 2);
  }
  for (const auto& [got, want] : {std::pair{&parts.dfused, &whole.dfused},
                                  {&parts.ddt, &whole.ddt},
                                  {&parts.ddt_bias, &whole.ddt_bias},
                                  {&parts.da_log, &whole.da_log},
                                  {&parts.dd_skip, &whole.dd_skip},
                                  {&parts.dstate, &whole.dstate}})
    EXPECT_TRUE(got->bytes == want->bytes);
}

// H, P, G, N of the released models (docs/internals/families.md): none may fall back to the reference.
TEST(SsdBwd, PublishedShapesHaveAFastRow) {
  const int64_t shapes[][4] = {{112, 64, 8, 128}, {128, 64, 8, 128}, {256, 64, 8, 256}, {128, 80, 8, 128},
                               {96, 80, 8, 128},  {64, 64, 8, 128},  {8, 64, 2, 64}};
  Arena arena;
  const Ctx ctx{.arena = arena};
  for (const auto& [heads, width, groups, states] : shapes) {
    for (DType type : {DType::f32, DType::bf16}) {
      Problem p({{1}, heads, width, groups, states, 128, type, false});
      EXPECT_STRNE(choose(ctx, p.op()).name, "ref");
    }
  }
}

}  // namespace
}  // namespace braid
