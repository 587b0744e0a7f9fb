// Tolerance: FP32 against FP64, largest error over the root mean square, 5e-5 (the bound of chunked against stepwise):
// a sum of a block (128) or of the states (256) rounds at 1e-6 of its terms, and decays of a block reach e^-100.
#include "kernels/ssd/ssd.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/ssd/ssd_ref.h"
#include "kernels/ssd/ssd_stored.h"
#include "support/run_here.h"

namespace braid {
namespace {

using support::run_here;

constexpr double kTolerance = 5e-5;

struct Case {
  std::vector<int64_t> lengths;
  int64_t heads, width, groups, states, chunk = 128;
  DType type = DType::f32;
  std::vector<int64_t> before{};  // tokens already in the state, for the grid; empty: none
  DType stored = DType::f32;      // of the state
};

// x, b and c are slices of one row, as the convolution leaves them.
struct Problem {
  Case shape;
  SeqMap seqs;
  TestTensor fused, dt, dt_bias, a_log, d_skip, state, scales, y;
  explicit Problem(const Case& c, double dt_scale = 1, double dt_shift = -1)
      : shape(c),
        seqs(map(c)),
        fused(c.type, {seqs.tokens(), c.heads * c.width + 2 * c.groups * c.states}, 1),
        dt(DType::f32, {seqs.tokens(), c.heads}, 2, dt_scale, dt_shift),
        dt_bias(DType::f32, {c.heads}, 3, 0.5),
        a_log(DType::f32, {c.heads}, 4, 0.8, 0.5),
        d_skip(DType::f32, {c.heads}, 5),
        state(c.stored, {std::ssize(c.lengths), c.heads, c.width, c.states}, 6, c.stored == DType::i8 ? 40 : 1),
        scales(DType::f32, {std::ssize(c.lengths), c.heads, c.width}, 8, 0, 1.0 / 40),
        y(DType::f32, {seqs.tokens(), c.heads, c.width}, 7) {}
  // Slots in reverse: a sequence is not where its state is.
  static SeqMap map(const Case& c) {
    SeqMap seqs;
    for (size_t i = 0; i < c.lengths.size(); ++i)
      seqs.add(c.lengths[i], c.before.empty() ? 0 : c.before[i], static_cast<int64_t>(c.lengths.size() - 1 - i));
    return seqs;
  }
  template <class Op>
  Op op() {
    const int64_t inner = shape.heads * shape.width, outer = shape.groups * shape.states;
    Op op{};
    op.x = fused.view().slice(1, 0, inner).split_last(shape.heads, shape.width);
    op.b = fused.view().slice(1, inner, outer).split_last(shape.groups, shape.states);
    op.c = fused.view().slice(1, inner + outer, outer).split_last(shape.groups, shape.states);
    op.dt = dt.view();
    op.dt_bias = dt_bias.view();
    op.a_log = a_log.view();
    op.d_skip = d_skip.view();
    op.state = state.mut();
    if (shape.stored == DType::i8) op.state_scales = scales.mut();
    op.noise = {.seed = 11, .stream = 3};
    op.y = y.mut();
    op.seqs = &seqs;
    if constexpr (std::is_same_v<Op, SsdFwd>) op.chunk = shape.chunk;
    return op;
  }
};

// Tokens [begin, begin + n) of a problem with one sequence, on its own state.
template <class Op>
void run_part(Problem& p, int64_t begin, int64_t n) {
  const SeqMap part = SeqMap::one(n, begin);
  Op op = p.op<Op>();
  for (View* v : {&op.x, &op.b, &op.c, &op.dt}) *v = v->slice(0, begin, n);
  op.y = op.y.slice(0, begin, n);
  op.seqs = &part;
  run_here(op);
}

void expect_near(const Problem& got, const Problem& want, const std::string& what) {
  EXPECT_LE(distance(got.y.view(), want.y.view()), kTolerance) << what;
  EXPECT_LE(distance(got.state.view(), want.state.view()), kTolerance) << what;
}

TEST(SsdFwd, EveryRowAgreesWithTheReference) {
  const Case cases[] = {{{150, 0, 1, 33}, 4, 64, 2, 128},        // ragged
                        {{70, 9}, 6, 80, 2, 96, 64},             // P = 80, N = 96, three heads a group
                        {{40}, 2, 64, 1, 256, 16, DType::bf16},  // N = 256
                        {{29, 3}, 3, 13, 3, 7, 8},               // nothing divides anything
                        {{5}, 1, 1, 1, 1, 4},                    // the smallest
                        {{20, 30}, 5, 80, 1, 33, 16, DType::bf16, {13, 32}},
                        {{300}, 2, 16, 2, 20, 256, DType::f32, {100}}};
  for (const Case& c : cases) sweep(Problem(c).op<SsdFwd>(), kTolerance);
}

TEST(SsdStep, EveryRowAgreesWithTheReference) {
  const Case cases[] = {{{1, 1, 0, 4}, 4, 64, 2, 128}, {{1}, 6, 80, 2, 96}, {{8, 1}, 2, 64, 1, 256, 128, DType::bf16},
                        {{3, 1}, 3, 13, 3, 7},         {{1}, 1, 1, 1, 1},   {{11}, 2, 5, 1, 133}};
  for (const Case& c : cases) sweep(Problem(c).op<SsdStep>(), kTolerance);
}

constexpr DType kStored[] = {DType::bf16, DType::f16, DType::i8};

// The value of a state's element, of any type.
double value_of(const Problem& p, int64_t i) {
  const double code = element(p.state.view(), i);
  return p.shape.stored == DType::i8 ? code * element(p.scales.view(), i / p.shape.states) : code;
}

// Rows of a few bits round the same values by the same draws as the reference does. Sums that differ in their last bits
// may fall on the other side of a draw: rarely, and by one step of the type (1e-6: what FP32 sums of terms near 1
// lose).
template <class Op>
void expect_stored_like_reference(const Case& shape) {
  Problem fast(shape), slow(shape);
  run_here(fast.op<Op>());
  Arena arena;
  Ctx ctx{.arena = arena};
  run_row(ctx, slow.op<Op>(), Op::rows().back());
  EXPECT_LE(distance(fast.y.view(), slow.y.view()), kTolerance) << name_of(shape.stored);
  int64_t differ = 0;
  for (int64_t i = 0; i < fast.state.view().count(); ++i) {
    const double got = value_of(fast, i), want = value_of(slow, i);
    if (std::fabs(got - want) <= 1e-6 * std::fabs(want)) continue;
    ++differ;
    const double step = shape.stored == DType::i8 ? element(slow.scales.view(), i / shape.states)
                                                  : std::fabs(want) * (shape.stored == DType::f16 ? 0x1p-10 : 0x1p-7);
    EXPECT_LE(std::fabs(got - want), 1.01 * step + 1e-6) << name_of(shape.stored) << " " << i;
  }
  EXPECT_LE(differ, 1 + fast.state.view().count() / 200) << name_of(shape.stored);
}

TEST(SsdStored, RowsRoundByTheReferencesDraws) {
  for (const DType type : kStored) {
    const Case steps[] = {{{1, 3, 0, 8}, 4, 64, 2, 128, 128, DType::f32, {7, 0, 1, 300}, type},
                          {{1}, 6, 80, 2, 96, 128, DType::bf16, {5}, type},
                          {{2, 1}, 3, 13, 3, 7, 8, DType::f32, {}, type},
                          {{1}, 1, 5, 1, 256, 128, DType::f32, {1}, type}};
    const Case prompts[] = {{{40, 0, 150}, 2, 70, 1, 256, 64, DType::bf16, {0, 3, 64}, type},
                            {{9, 1}, 6, 13, 3, 33, 8, DType::f32, {}, type}};
    for (const Case& c : steps) expect_stored_like_reference<SsdStep>(c);
    for (const Case& c : prompts) expect_stored_like_reference<SsdFwd>(c);
    // Bits of threads; what is stored was compared above.
    for (const Case& c : prompts) sweep(Problem(c).op<SsdFwd>(), type == DType::i8 ? 2.0 : 0.05);
    for (const Case& c : prompts) sweep(Problem(c).op<SsdStep>(), type == DType::i8 ? 2.0 : 0.05);
  }
}

// A value between two of the type becomes either, with probabilities that keep its mean.
TEST(SsdStored, RoundingKeepsTheMean) {
  constexpr int64_t draws = 2000, states = 32;
  for (const DType type : kStored) {
    for (const double size : {1.0, 1e-6}) {  // of F16 the second are subnormal
      std::vector<double> exact(states), mean(states), row;
      for (size_t n = 0; n < states; ++n) exact[n] = static_cast<double>(normal4({.seed = 5}, n)[0]) * size;
      for (int64_t position = 0; position < draws; ++position) {
        row = exact;
        store_row_ref(type, {.seed = 11}, position, 3, row);
        for (size_t n = 0; n < states; ++n) mean[n] += row[n] / static_cast<double>(draws);
      }
      double most = 0;
      for (const double v : exact) most = std::max(most, std::fabs(v));
      for (size_t n = 0; n < states; ++n) {
        const double step = type == DType::i8    ? most / 127
                            : type == DType::f16 ? std::max(std::fabs(exact[n]) * 0x1p-10, 0x1p-24)
                                                 : std::fabs(exact[n]) * 0x1p-7;
        EXPECT_NEAR(mean[n], exact[n], 4.5 * 0.5 * step / std::sqrt(draws)) << name_of(type) << " " << n;
      }
    }
  }
}

// Non-finite values stay visible: in place, or in the whole row where the row shares a scale.
TEST(SsdStored, NonFiniteValuesAreSeen) {
  for (const DType type : kStored) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Problem p({{1}, 2, 5, 1, 20, 128, DType::f32, {}, type});
      fill(p.state.mut(), 0);
      p.fused.mut().as<float>()[5 + 2] = bad;                                  // x of head 1, channel 2
      for (int64_t n = 0; n < 20; ++n) p.fused.mut().as<float>()[10 + n] = 1;  // b
      run_here(p.op<SsdStep>());
      for (int64_t i = 0; i < p.state.view().count(); ++i)
        EXPECT_EQ(std::isfinite(value_of(p, i)), i / 20 != 5 + 2) << name_of(type) << " " << i;
    }
  }
}

// The random numbers depend on the position in the sequence, not on the slot of its state or the other sequences of the
// call.
TEST(SsdStored, DrawsBelongToTheSequence) {
  for (const DType type : kStored) {
    const Case shape{{3, 1, 2}, 4, 20, 2, 40, 128, DType::f32, {4, 0, 9}, type};
    Problem batch(shape), alone(shape);
    run_here(batch.op<SsdStep>());
    for (const Seq& seq : alone.seqs.seqs) {
      const SeqMap one = SeqMap::one(seq.len, seq.pos0, seq.slot);
      SsdStep op = alone.op<SsdStep>();
      for (View* v : {&op.x, &op.b, &op.c, &op.dt}) *v = v->slice(0, seq.start, seq.len);
      op.y = op.y.slice(0, seq.start, seq.len);
      op.seqs = &one;
      run_here(op);
    }
    EXPECT_TRUE(batch.y.bytes == alone.y.bytes && batch.state.bytes == alone.state.bytes) << name_of(type);
    EXPECT_TRUE(batch.scales.bytes == alone.scales.bytes) << name_of(type);
  }
}

// A NaN in dt makes the outputs of its head NaN from that token on, and leaves the other heads unchanged.
template <class Op>
void expect_nan_is_seen() {
  Problem p({{9}, 3, 8, 1, 16, 4});
  p.dt.mut().as<float>(5)[1] = std::numeric_limits<float>::quiet_NaN();
  run_here(p.op<Op>());
  for (int64_t t = 0; t < 9; ++t) {
    for (int64_t head = 0; head < 3; ++head)
      EXPECT_EQ(std::isnan(p.y.view().as<float>(t)[head * 8]), head == 1 && t >= 5) << t << ", head " << head;
  }
}

TEST(SsdFwd, NanIsSeen) { expect_nan_is_seen<SsdFwd>(); }
TEST(SsdStep, NanIsSeen) { expect_nan_is_seen<SsdStep>(); }

TEST(SsdFwd, ChunksOfAnySizeAgreeWithTokenByToken) {
  Problem steps({{203}, 4, 80, 2, 96});
  for (int64_t t = 0; t < 203; ++t) run_part<SsdStep>(steps, t, 1);
  for (int64_t chunk : {1, 7, 16, 64, 128, 256, 1000}) {
    Problem chunked({{203}, 4, 80, 2, 96, chunk});
    run_here(chunked.op<SsdFwd>());
    expect_near(chunked, steps, "chunk " + std::to_string(chunk));
  }
}

TEST(SsdFwd, StateIsHandedOver) {
  const Case shape{{90}, 4, 64, 2, 128, 32};
  Problem whole(shape), parts(shape);
  run_here(whole.op<SsdFwd>());
  run_part<SsdFwd>(parts, 0, 50);
  run_part<SsdFwd>(parts, 50, 21);
  run_part<SsdStep>(parts, 71, 8);
  for (int64_t t = 79; t < 90; ++t) run_part<SsdStep>(parts, t, 1);
  expect_near(parts, whole, "prefill and steps");
}

// A cut on the grid changes no bit, nor does any later token.
TEST(SsdFwd, CutsOnTheGridChangeNoBit) {
  const Case shape{{101}, 3, 80, 3, 40, 32};
  Problem whole(shape), parts(shape), prefix(shape);
  run_here(whole.op<SsdFwd>());
  run_part<SsdFwd>(parts, 0, 64);
  run_part<SsdFwd>(parts, 64, 32);
  run_part<SsdFwd>(parts, 96, 5);
  EXPECT_TRUE(parts.y.bytes == whole.y.bytes);
  EXPECT_TRUE(parts.state.bytes == whole.state.bytes);
  for (int64_t n : {1, 31, 33, 47, 100}) {
    Problem first(shape);
    run_part<SsdFwd>(first, 0, n);
    EXPECT_EQ(std::memcmp(first.y.bytes.data(), whole.y.bytes.data(), static_cast<size_t>(n * 3 * 80 * 4)), 0) << n;
  }
}

// The grid starts with the sequence, not with the call: a chunk that begins off the grid ends at the next grid line.
TEST(SsdFwd, TheGridIsTheSequences) {
  const Case shape{{101}, 2, 16, 1, 24, 32};
  Problem one(shape), two(shape);
  run_part<SsdFwd>(one, 0, 20);
  run_part<SsdFwd>(one, 20, 81);
  run_part<SsdFwd>(two, 0, 20);
  run_part<SsdFwd>(two, 20, 12);
  run_part<SsdFwd>(two, 32, 69);
  EXPECT_TRUE(one.y.bytes == two.y.bytes);
  EXPECT_TRUE(one.state.bytes == two.state.bytes);
}

TEST(SsdFwd, BatchMatesChangeNoBit) {
  const Case shape{{5, 40, 0, 17, 1}, 4, 20, 2, 24, 16, DType::f32, {3, 16, 0, 7, 15}};
  Problem batch(shape), alone(shape);
  run_here(batch.op<SsdFwd>());
  for (const Seq& seq : alone.seqs.seqs) {
    const SeqMap one = SeqMap::one(seq.len, seq.pos0, seq.slot);  // at row 0: the grid must not move with it
    SsdFwd op = alone.op<SsdFwd>();
    for (View* v : {&op.x, &op.b, &op.c, &op.dt}) *v = v->slice(0, seq.start, seq.len);
    op.y = op.y.slice(0, seq.start, seq.len);
    op.seqs = &one;
    run_here(op);
  }
  EXPECT_TRUE(batch.y.bytes == alone.y.bytes);
  EXPECT_TRUE(batch.state.bytes == alone.state.bytes);
}

TEST(SsdStep, TokensTogetherOrOneByOneAreTheSameBits) {
  const Case shape{{11}, 4, 20, 2, 128};
  Problem together(shape), single(shape);
  run_here(together.op<SsdStep>());
  for (int64_t t = 0; t < 11; ++t) run_part<SsdStep>(single, t, 1);
  EXPECT_TRUE(together.y.bytes == single.y.bytes);
  EXPECT_TRUE(together.state.bytes == single.state.bytes);
}

// Three sequences of which two leave a trail: their own states stay, and the state after each token is that of as many
// steps of one token.
TEST(SsdStep, ATrailHasTheStateAfterEachToken) {
  const std::pair<DType, DType> types[] = {{DType::f32, DType::f32},
                                           {DType::bf16, DType::f32},
                                           {DType::f32, DType::f16},
                                           {DType::bf16, DType::bf16},
                                           {DType::f32, DType::i8}};
  for (const auto& [type, stored] : types) {
    const Case shape{{4, 2, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 4, 21, 2, 133, 128, type, {}, stored};
    const auto make = [&] {
      auto p = std::make_unique<Problem>(shape);
      p->seqs.seqs.resize(3);  // of slots 16, 15 and 14
      p->seqs.trails = {3, 12, 0, 7, 1, 2, 4, 5, 6, 8, 9, 10, 11, 13};
      for (Seq& s : p->seqs.seqs) s.phase = Phase::step;
      p->seqs.seqs[0].trail = 0;
      p->seqs.seqs[2].trail = 4;
      return p;
    };
    if (stored == DType::f32) sweep(make()->op<SsdStep>(), kTolerance);
    const auto trail = make(), single = make();
    run_here(trail->op<SsdStep>());
    const auto same = [](Problem& a, int64_t slot, Problem& b, int64_t its) {
      const auto equal = [](const View& v, const View& w) {
        return std::memcmp(v.data, w.data, static_cast<size_t>(v.bytes())) == 0;
      };
      return equal(a.state.view().slice(0, slot, 1), b.state.view().slice(0, its, 1)) &&
             equal(a.scales.view().slice(0, slot, 1), b.scales.view().slice(0, its, 1));
    };
    const auto untouched = make();
    for (const Seq& s : trail->seqs.seqs) {
      EXPECT_EQ(same(*trail, s.slot, *untouched, s.slot), s.trail >= 0);
      for (int64_t t = 0; t < s.len; ++t) {
        const SeqMap one = SeqMap::one(1, t, s.slot);
        SsdStep op = single->op<SsdStep>();
        for (View* v : {&op.x, &op.b, &op.c, &op.dt}) *v = v->slice(0, s.start + t, 1);
        op.y = op.y.slice(0, s.start + t, 1);
        op.seqs = &one;
        run_here(op);
        if (s.trail >= 0) {
          EXPECT_TRUE(same(*trail, trail->seqs.slot_after(s, t), *single, s.slot))
              << name_of(stored) << ", token " << t;
        }
      }
      if (s.trail < 0 && stored != DType::f32) continue;  // two tokens of one call are rounded once
      const auto row = static_cast<size_t>(trail->y.view().stride(0)) * sizeof(float);
      EXPECT_EQ(
          std::memcmp(trail->y.bytes.data() + static_cast<size_t>(s.start) * row,
                      single->y.bytes.data() + static_cast<size_t>(s.start) * row, static_cast<size_t>(s.len) * row),
          0);
      if (s.trail < 0) {
        EXPECT_TRUE(same(*trail, s.slot, *single, s.slot));
      }
    }
  }
}

TEST(SsdStepDeath, ATrailIsOfOtherSlots) {
  for (const std::vector<int64_t>& trails : std::vector<std::vector<int64_t>>{{0, 2}, {1, 3}, {-1, 1}, {1}}) {
    Problem p({{2, 0, 0}, 2, 4, 1, 8});
    p.seqs.seqs.resize(1);
    p.seqs.seqs[0].slot = 0;
    p.seqs.seqs[0].phase = Phase::step;
    p.seqs.seqs[0].trail = 0;
    p.seqs.trails = trails;
    EXPECT_DEATH(run_here(p.op<SsdStep>()), "ssd_step: trail 0 of 2 tokens");
    EXPECT_DEATH(run_here(p.op<SsdFwd>()), "ssd_fwd: trail");
  }
}

// Steps of 1e4, decays of e^-1e6, softplus of -1e4: nothing overflows, and small decays after large ones keep their
// digits although their cumulative sum is large.
TEST(SsdFwd, ExtremesStayFinite) {
  for (const auto& [scale, shift] : {std::pair{3000.0, 5000.0}, {4000.0, 0.0}, {1.0, -1e4}, {5.0, 0.0}}) {
    Problem p({{70}, 4, 16, 2, 32, 64}, scale, shift);
    set_element(p.a_log.mut(), 0, 5);
    set_element(p.a_log.mut(), 1, -8);
    sweep(p.op<SsdFwd>(), kTolerance);
    sweep(p.op<SsdStep>(), kTolerance);
  }
  Problem mixed({{64}, 2, 16, 1, 32, 64}, 0.5, -6);
  for (int64_t t = 0; t < 64; t += 8) set_element(mixed.dt.mut(), 2 * t, 3000);
  sweep(mixed.op<SsdFwd>(), kTolerance);
}

TEST(SsdFwd, NoStateIsAStateOfZeros) {
  const Case shape{{40, 0, 1, 17}, 4, 20, 2, 24, 16};
  Problem with(shape), without(shape);
  fill(with.state.mut(), 0);
  SsdFwd op = without.op<SsdFwd>();
  op.state = {};
  sweep(op, kTolerance);
  run_here(with.op<SsdFwd>());
  run_here(op);
  EXPECT_TRUE(with.y.bytes == without.y.bytes);
}

TEST(SsdFwd, OutputsMayBeNarrow) {
  for (int64_t width : {13, 64}) {
    Problem p({{40, 3}, 4, width, 2, 24, 16, DType::bf16});
    TestTensor y(DType::bf16, p.y.shape, 7);
    SsdFwd op = p.op<SsdFwd>();
    op.y = y.mut();
    op.state = {};
    sweep(op, 2e-2);
    Arena arena;
    EXPECT_STRNE(choose(Ctx{.arena = arena}, op).name, "ref");
  }
}

TEST(SsdFwd, RawStepsMayBeNarrow) {
  Problem p({{40, 3}, 4, 20, 2, 24, 16, DType::bf16});
  TestTensor dt(DType::bf16, p.dt.shape, 2, 1, -1);
  SsdFwd op = p.op<SsdFwd>();
  SsdStep step = p.op<SsdStep>();
  op.dt = step.dt = dt.view();
  sweep(op, kTolerance);
  sweep(step, kTolerance);
  Arena arena;
  EXPECT_STRNE(choose(Ctx{.arena = arena}, op).name, "ref");
}

TEST(SsdFwd, StepsAreClampedToTheirLimits) {
  Problem p({{20}, 2, 8, 1, 16, 8}, 3, 0);
  SsdFwd op = p.op<SsdFwd>();
  op.dt_min = 0.3f;
  op.dt_max = 0.9f;
  sweep(op, kTolerance);
  Problem q({{20}, 2, 8, 1, 16, 8}, 3, 0);
  run_here(op);
  run_here(q.op<SsdFwd>());
  EXPECT_GT(distance(p.y.view(), q.y.view()), 0.01);
}

// Two groups of three heads are six groups of one, each group's b and c three times in a row.
template <class Op>
void expect_contiguous_groups() {
  const int64_t tokens = 6, width = 4, states = 16;
  Problem p({{tokens}, 6, width, 2, states, 4});
  TestTensor b(DType::f32, {tokens, 6, states}, 0), c(DType::f32, {tokens, 6, states}, 0);
  Op op = p.op<Op>();
  for (int64_t i = 0; i < b.view().count(); ++i) {
    const int64_t t = i / (6 * states), head = i / states % 6, from = (t * 2 + head / 3) * states + i % states;
    set_element(b.mut(), i, element(op.b, from));
    set_element(c.mut(), i, element(op.c, from));
  }
  Problem q({{tokens}, 6, width, 2, states, 4});
  Op wide = op;
  wide.b = b.view();
  wide.c = c.view();
  wide.state = q.state.mut();
  wide.y = q.y.mut();
  run_here(op);
  run_here(wide);
  expect_near(p, q, Op::name);
}
TEST(SsdFwd, NeighbouringHeadsShareAGroup) { expect_contiguous_groups<SsdFwd>(); }
TEST(SsdStep, NeighbouringHeadsShareAGroup) { expect_contiguous_groups<SsdStep>(); }

// H, P, G, N of the released models (docs/internals/families.md): none may fall back to the reference.
TEST(SsdFwd, PublishedShapesHaveAFastRow) {
  const int64_t shapes[][4] = {{112, 64, 8, 128}, {128, 64, 8, 128}, {256, 64, 8, 256}, {128, 80, 8, 128},
                               {96, 80, 8, 128},  {64, 64, 8, 128},  {256, 64, 8, 128}, {128, 64, 8, 96}};
  Arena arena;
  const Ctx ctx{.arena = arena};
  for (const auto& [heads, width, groups, states] : shapes) {
    for (DType type : {DType::f32, DType::bf16}) {
      Problem p({{1}, heads, width, groups, states, 128, type});
      EXPECT_STRNE(choose(ctx, p.op<SsdFwd>()).name, "ref");
      EXPECT_STRNE(choose(ctx, p.op<SsdStep>()).name, "ref");
    }
  }
}

// The reference differentiates: complex step against central differences, in dt, which every path depends on.
TEST(SsdRef, TakesAComplexStep) {
  const SsdShape shape{.heads = 2, .width = 2, .groups = 1, .states = 3, .dt_max = 100};
  const int64_t tokens = 4;
  Problem p({{tokens}, 2, 2, 1, 3});
  const SsdFwd op = p.op<SsdFwd>();
  const auto loss = [&]<class Num>(const std::vector<Num>& dt) {
    const auto as = [](const std::vector<double>& v) { return std::vector<Num>(v.begin(), v.end()); };
    std::vector<Num> state = as(to_doubles(op.state)), y(static_cast<size_t>(tokens * 4));
    ssd_ref<Num>(shape, 0, tokens, as(to_doubles(op.x)), as(to_doubles(op.b)), as(to_doubles(op.c)), dt,
                 as(to_doubles(op.dt_bias)), as(to_doubles(op.a_log)), as(to_doubles(op.d_skip)), state, y);
    Num sum(0);
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * y[i] * Num(static_cast<double>(i % 3));
    return sum;
  };
  const std::vector<double> dt = to_doubles(op.dt);
  const std::vector<double> gradient = complex_step(dt, loss);
  for (size_t i = 0; i < dt.size(); ++i) {
    std::vector<double> up = dt, down = dt;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR(gradient[i], (loss(up) - loss(down)) / 2e-5, 1e-6 * std::max(1.0, std::fabs(gradient[i])));
  }
}

}  // namespace
}  // namespace braid
