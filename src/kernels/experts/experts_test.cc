// Tolerances, relative to the root mean square of the result: FP32 2e-5; the BF16 class rounds the hidden activations
// and BF16 results are rounded themselves, values of five times the root mean square among them: 0.05.
#include "kernels/experts/experts.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/experts/experts_ref.h"
#include "kernels/experts/experts_rows.h"
#include "math/codes_a8.h"
#include "sys/machine.h"

namespace braid {
namespace {

// E weights of [rows, cols] in one format.
struct Pile {
  std::vector<TestWeight> values;
  std::vector<Weight> weights;
  template <class Kind>  // Format or GgmlType
  Pile(Kind format, int64_t count, int64_t rows, int64_t cols, uint64_t seed) {
    const double scale = 1 / std::sqrt(static_cast<double>(cols));
    for (int64_t e = 0; e < count; ++e) {
      const auto own = seed * 1000 + static_cast<uint64_t>(e);
      weights.push_back(values.emplace_back(format, rows, cols, own, scale).weight());
    }
  }
};

// K different experts for each token, from a fixed walk; `bias` of the walk makes some experts popular.
std::vector<int32_t> choices(int64_t tokens, int64_t k, int64_t count) {
  std::vector<int32_t> all(static_cast<size_t>(count)), out;
  std::iota(all.begin(), all.end(), 0);
  uint32_t state = 12345;
  for (int64_t t = 0; t < tokens; ++t) {
    for (size_t j = 0; j < static_cast<size_t>(k); ++j) {
      state = state * 1664525u + 1013904223u;
      std::swap(all[j], all[j + (state >> 16) % (all.size() - j)]);
      out.push_back(all[j]);
    }
  }
  return out;
}

struct Problem {
  TestTensor x, weights, y;
  std::vector<int32_t> experts;
  Pile up, gate, down;
  ExpertsFwd op;
  template <class Kind>
  Problem(int64_t tokens, int64_t k, int64_t count, int64_t hidden, int64_t width, DType x_type, DType y_type,
          Kind format, bool gated = false, ExpertAct act = ExpertAct::relu2)
      : x(x_type, {tokens, width}, 1),
        weights(DType::f32, {tokens, k}, 2, 0.2, 0.5),
        y(y_type, {tokens, width}, 3),
        experts(choices(tokens, k, count)),
        up(format, count, hidden, width, 4),
        gate(format, gated ? count : 0, hidden, width, 5),
        down(format, count, width, hidden, 6) {
    op = {.x = x.view(),
          .experts = view_of(experts.data(), {tokens, k}),
          .weights = weights.view(),
          .up = up.weights,
          .gate = gate.weights,
          .down = down.weights,
          .y = y.mut(),
          .act = act};
  }
};

TEST(Experts, EveryRowAgreesWithTheReference) {
  struct Case {
    int64_t tokens, k, count, hidden, width;
  };
  // Fewer tokens than experts and the other way round, K = E, one token, widths that fill no vector; then more rows
  // than are computed at a time, and experts of several tasks.
  for (const Case& c : {Case{1, 6, 16, 58, 64}, Case{7, 2, 16, 58, 32}, Case{40, 3, 4, 58, 32}, Case{3, 4, 4, 17, 5},
                        Case{1, 1, 1, 1, 1}, Case{300, 2, 2, 33, 24}, Case{5, 2, 3, 700, 200}}) {
    for (const DType x_type : {DType::f32, DType::bf16}) {
      for (const DType y_type : {DType::f32, DType::bf16}) {
        const Format format = x_type == DType::f32 ? Format::f32 : Format::bf16;
        sweep(Problem(c.tokens, c.k, c.count, c.hidden, c.width, x_type, y_type, format).op,
              y_type == DType::f32 ? 2e-5 : 0.05, 0.05);
      }
    }
  }
}

TEST(Experts, GatesAndActivations) {
  for (const ExpertAct act : {ExpertAct::relu2, ExpertAct::silu}) {
    for (const bool gated : {false, true}) {
      sweep(Problem(9, 2, 5, 58, 32, DType::f32, DType::f32, Format::f32, gated, act).op, 2e-5);
      sweep(Problem(9, 2, 5, 58, 32, DType::bf16, DType::f32, Format::bf16, gated, act).op, 2e-5, 0.05);
    }
  }
}

TEST(Experts, QuantisedWeightsAreMultipliedInPlace) {
  for (const Format format : {Format::nvfp4, Format::f8_e4m3}) {
    sweep(Problem(5, 3, 6, 48, 32, DType::f32, DType::f32, format, true).op, 2e-5);
    sweep(Problem(5, 3, 6, 48, 32, DType::bf16, DType::f32, format).op, 2e-5, 0.05);
  }
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::iq4_nl}) {
    sweep(Problem(5, 3, 6, 96, 32, DType::f32, DType::f32, type, true).op, 2e-5);
    sweep(Problem(37, 3, 6, 96, 32, DType::bf16, DType::f32, type).op, 2e-5, 0.05);
  }
}

// Integers times codes, in groups of few rows and of many.
TEST(Experts, AStepOverCodes) {
  for (const int64_t tokens : {1, 3, 40}) {
    for (const bool gated : {false, true}) {
      Problem p(tokens, 2, 4, 48, 80, DType::bf16, DType::f32, Format::nvfp4, gated);
      p.op.codes = CodeDots::a16;
      sweep(p.op, 0.02, 0.02);  // hidden values near a BF16 tie may round the other way
    }
  }
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q5_1, GgmlType::mxfp4}) {
    Problem p(3, 2, 4, 96, 64, DType::bf16, DType::f32, type, true);
    p.op.codes = CodeDots::a16;
    sweep(p.op, 0.02, 0.02);
  }
  Problem p(2, 2, 4, 48, 80, DType::bf16, DType::f32, Format::nvfp4);
  const auto step = std::find_if(ExpertsFwd::rows().begin(), ExpertsFwd::rows().end(),
                                 [](const auto& row) { return std::string_view(row.name) == "grouped_codes"; });
  EXPECT_STREQ(step->supports(p.op), "not a step");
}

// A row times w in class codes_a8.
std::vector<float> product_a8(const Bf16* x, const Weight& w) {
  std::vector<std::byte> packed(static_cast<size_t>(codes::a8::row_bytes(w.spec, w.cols)));
  std::vector<std::byte> space(static_cast<size_t>(codes::a8::workspace(1)));
  std::vector<float> y(static_cast<size_t>(w.rows));
  codes::a8::pack(&x, 1, w.cols, w.spec, packed.data());
  codes::a8::product(packed.data(), w, mut_view_of(y.data(), {1, w.rows}), space);
  return y;
}

const char* a8_refusal(const ExpertsFwd& op) {
  const auto row = std::find_if(ExpertsFwd::rows().begin(), ExpertsFwd::rows().end(),
                                [](const auto& r) { return std::string_view(r.name) == "grouped_a8"; });
  return row->supports(op);
}

// Activations of 8 bits: the result of a token equals, bit for bit, the products of its row alone, also where an expert
// has more rows than one product takes.
TEST(Experts, ManyRowsOverCodes) {
  for (const auto& [tokens, experts] : {std::pair<int64_t, int64_t>{3, 3}, {40, 3}, {1100, 2}}) {
    Problem p(tokens, 2, experts, 96, 160, DType::bf16, DType::f32, Format::nvfp4);
    EXPECT_STREQ(a8_refusal(p.op), "activations are not rounded to 8 bits");
    p.op.codes = CodeDots::a8;
    if (const char* reason = a8_refusal(p.op)) GTEST_SKIP() << reason;
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    ctx.forced_rows[ExpertsFwd::name] = "grouped_a8";
    run(ctx, p.op);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<float> want(160, 0.0f);
      for (int64_t j = 0; j < 2; ++j) {
        const auto e = static_cast<size_t>(p.op.experts.as<int32_t>(t)[j]);
        std::vector<Bf16> hidden;
        for (const float u : product_a8(p.op.x.as<Bf16>(t), p.op.up[e]))
          hidden.push_back(to_bf16(std::max(u, 0.0f) * std::max(u, 0.0f)));
        const std::vector<float> down = product_a8(hidden.data(), p.op.down[e]);
        for (size_t i = 0; i < want.size(); ++i) want[i] = std::fma(p.op.weights.as<float>(t)[j], down[i], want[i]);
      }
      ASSERT_EQ(std::memcmp(want.data(), p.y.view().as<float>(t), want.size() * sizeof(float)), 0) << t;
    }
  }
}

// Other formats and gates; only the rounding of x and of the hidden values differs.
TEST(Experts, ManyRowsOverCodesWithGates) {
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q5_1, GgmlType::mxfp4}) {
    Problem p(25, 2, 4, 96, 64, DType::bf16, DType::f32, type, true);
    p.op.codes = CodeDots::a8;
    sweep(p.op, 0.08, 0.08);
  }
}

TEST(Experts, PublishedWidths) {
  // 3 Nano: 1856 is not a multiple of 128; only 40 of the 2688 channels, to keep the reference fast.
  sweep(Problem(3, 2, 3, 1856, 40, DType::bf16, DType::bf16, Format::bf16).op, 2e-5, 0.05);
}

TEST(Experts, OneExpertMayTakeEverything) {
  Problem p(50, 2, 8, 58, 32, DType::f32, DType::f32, Format::f32);
  std::fill(p.experts.begin(), p.experts.end(), 5);
  sweep(p.op, 2e-5);
  p.experts[17] = 0;
  sweep(p.op, 2e-5);
}

// The row contract: alone, with other rows, in any order, on any number of threads.
TEST(Experts, ATokenNeverSeesItsBatchMates) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Problem p(300, 3, 6, 700, 200, type, DType::f32, type == DType::f32 ? Format::f32 : Format::bf16);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    run(ctx, p.op);
    for (const int64_t n : {1, 2, 5, 70}) {
      for (const int64_t first : {0, 11, 229}) {
        TestTensor y(DType::f32, {n, 200}, 9);
        ExpertsFwd some = p.op;
        some.x = p.op.x.slice(0, first, n);
        some.experts = p.op.experts.slice(0, first, n);
        some.weights = p.op.weights.slice(0, first, n);
        some.y = y.mut();
        ctx.threads = static_cast<int>(1 + n % 3);
        run(ctx, some);
        EXPECT_EQ(std::memcmp(y.view().data, p.y.view().as<float>(first), y.bytes.size()), 0)
            << name_of(type) << ": tokens " << first << "+" << n;
      }
    }
  }
}

// The result is that of the other slots alone, with the bits of a slot whose result is 0.
TEST(Experts, DroppedSlotsAddNothing) {
  for (const DType x_type : {DType::f32, DType::bf16}) {
    for (const bool train : {false, true}) {
      Problem p(40, 3, 5, 58, 32, x_type, DType::f32, x_type == DType::f32 ? Format::f32 : Format::bf16, true);
      p.op.train = train;
      for (size_t i = 0; i < p.experts.size(); i += 1 + i % 4) p.experts[i] = -1;
      for (size_t i = 30; i < 33; ++i) p.experts[i] = -1;  // a whole token
      sweep(p.op, 2e-5, 0.05);
      Arena arena;
      Ctx ctx{.arena = arena};
      run(ctx, p.op);
      for (const double y : to_doubles(p.y.view().slice(0, 10, 1))) EXPECT_EQ(y, 0);
      const std::vector<double> dropped = to_doubles(p.y.view());
      for (size_t i = 0; i < p.experts.size(); ++i) {
        if (p.experts[i] >= 0) continue;
        p.experts[i] = 0;
        p.weights.mut().as<float>()[i] = 0;
      }
      run(ctx, p.op);
      EXPECT_EQ(to_doubles(p.y.view()), dropped);
    }
  }
}

TEST(Experts, SlotsAreWeighedInTheirOrder) {
  // One hidden unit each: expert e computes (u_e x)^2 d_e.
  const std::vector<float> x{3}, weights{0.5f, 0.25f};
  const std::vector<int32_t> experts{1, 0};
  const std::vector<float> up{1, -1, 2}, down{10, 20, 1};
  std::vector<Weight> ups, downs;
  for (const float& u : up) ups.push_back(dense_weight(view_of(&u, {1, 1})));
  for (const float& d : down) downs.push_back(dense_weight(view_of(&d, {1, 1})));
  std::vector<float> y{NAN};
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, ExpertsFwd{.x = view_of(x.data(), {1, 1}),
                      .experts = view_of(experts.data(), {1, 2}),
                      .weights = view_of(weights.data(), {1, 2}),
                      .up = ups,
                      .down = downs,
                      .y = mut_view_of(y.data(), {1, 1})});
  EXPECT_EQ(y[0], 0.25f * 9 * 10);  // expert 1 sees -3: relu2 gives 0
}

TEST(Experts, ExtremeActivationsStayFinite) {
  const float one = 1;
  for (const float u : {-1000.0f, -120.0f, -90.0f, 120.0f, 1000.0f}) {
    const std::vector<int32_t> experts{0};
    const std::vector<Weight> ups{dense_weight(view_of(&u, {1, 1}))}, downs{dense_weight(view_of(&one, {1, 1}))};
    float y = NAN;
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, ExpertsFwd{.x = view_of(&one, {1, 1}),
                        .experts = view_of(experts.data(), {1, 1}),
                        .weights = view_of(&one, {1, 1}),
                        .up = ups,
                        .down = downs,
                        .y = mut_view_of(&y, {1, 1}),
                        .act = ExpertAct::silu});
    EXPECT_NEAR(y, std::max(u, 0.0f), 1e-30) << u;
  }
}

// Failures must be visible: NaN in a token is NaN in all of its result and in no other's, in every row.
TEST(Experts, NanIsSeen) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const bool gated : {false, true}) {
      for (const ExpertAct act : {ExpertAct::relu2, ExpertAct::silu}) {
        Problem p(5, 2, 3, 37, 24, type, DType::f32, type == DType::f32 ? Format::f32 : Format::bf16, gated, act);
        set_element(p.x.mut(), 2 * 24 + 7, NAN);
        Arena arena;
        Ctx ctx{.arena = arena};
        for (const Row<ExpertsFwd>& row : ExpertsFwd::rows()) {
          if (row.device != Device::cpu || !row.run || (row.supports && row.supports(p.op))) continue;
          run_row(ctx, p.op, row);
          for (int64_t i = 0; i < 5 * 24; ++i)
            EXPECT_EQ(std::isnan(element(p.y.view(), i)), i / 24 == 2) << row.name << " " << name_of(type) << " " << i;
        }
      }
    }
  }
}

// The backward of a forward problem, with nonzero initial gradients.
struct BackwardProblem {
  Problem forward;
  SeqMap seqs;
  TestTensor dy, dx, dweights;
  std::vector<TestTensor> values;
  std::vector<MutView> dup, dgate, ddown;
  ExpertsBwd op;
  BackwardProblem(const std::vector<int64_t>& lens, int64_t k, int64_t count, int64_t hidden, int64_t width,
                  DType type = DType::f32, bool gated = false, ExpertAct act = ExpertAct::relu2)
      : BackwardProblem(lens, k, count, hidden, width, type, type == DType::f32 ? Format::f32 : Format::bf16, gated,
                        act) {}
  BackwardProblem(const std::vector<int64_t>& lens, int64_t k, int64_t count, int64_t hidden, int64_t width, DType type,
                  Format format, bool gated, ExpertAct act)
      : forward(tokens_of(lens), k, count, hidden, width, type, DType::f32, format, gated, act),
        dy(DType::f32, {tokens_of(lens), width}, 7),
        dx(DType::f32, {tokens_of(lens), width}, 8),
        dweights(DType::f32, {tokens_of(lens), k}, 9) {
    for (const int64_t len : lens) seqs.add(len);
    values.reserve(static_cast<size_t>(3 * count));
    for (int64_t e = 0; e < count; ++e) {
      dup.push_back(values.emplace_back(DType::f32, Shape{hidden, width}, 10).mut());
      if (gated) dgate.push_back(values.emplace_back(DType::f32, Shape{hidden, width}, 11).mut());
      ddown.push_back(values.emplace_back(DType::f32, Shape{width, hidden}, 12).mut());
    }
    op = {.dy = dy.view(),
          .x = forward.op.x,
          .experts = forward.op.experts,
          .weights = forward.op.weights,
          .up = forward.op.up,
          .gate = forward.op.gate,
          .down = forward.op.down,
          .dx = dx.mut(),
          .dweights = dweights.mut(),
          .dup = dup,
          .dgate = dgate,
          .ddown = ddown,
          .seqs = &seqs,
          .act = act};
  }
  static int64_t tokens_of(const std::vector<int64_t>& lens) { return std::accumulate(lens.begin(), lens.end(), 0); }
};

// Of slot 3, too, which was dropped.
TEST(ExpertsBackward, IsTheDerivative) {
  using Complex = std::complex<double>;
  for (const ExpertAct act : {ExpertAct::relu2, ExpertAct::silu}) {
    for (const bool gated : {false, true}) {
      BackwardProblem p({2, 1}, 2, 4, 3, 5, DType::f32, gated, act);
      p.forward.experts[3] = -1;
      const auto lists = {p.forward.op.up, p.forward.op.gate, p.forward.op.down};
      std::vector<double> inputs = to_doubles(p.op.x), dy = to_doubles(p.op.dy);
      const auto append = [&](const View& v) {
        const auto more = to_doubles(v);
        inputs.insert(inputs.end(), more.begin(), more.end());
      };
      append(p.op.weights);
      for (const auto& list : lists) {
        for (const Weight& w : list) append(w.codes);
      }
      const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& z) {
        const auto matrix = [&](size_t list, size_t e) {  // 0 up, 1 gate, 2 down
          const size_t at = 3 * 5 + 3 * 2 + ((list > 0 && !gated ? list - 1 : list) * 4 + e) * 15;
          return std::vector<Complex>(z.begin() + static_cast<int64_t>(at), z.begin() + static_cast<int64_t>(at + 15));
        };
        Complex loss = 0;
        for (size_t slot = 0; slot < 6; ++slot) {
          if (slot == 3) continue;
          const size_t t = slot / 2, e = static_cast<size_t>(p.forward.experts[slot]);
          const std::vector<Complex> x(z.begin() + static_cast<int64_t>(t * 5),
                                       z.begin() + static_cast<int64_t>(t * 5 + 5));
          const auto y = expert_ref(x, matrix(0, e), gated ? matrix(1, e) : std::vector<Complex>(), matrix(2, e),
                                    act == ExpertAct::silu);
          for (size_t r = 0; r < 5; ++r) loss += dy[t * 5 + r] * z[15 + slot] * y[r];
        }
        return loss;
      });
      for (TestTensor& v : p.values) fill(v.mut(), 0);
      Arena arena;
      Ctx ctx{.arena = arena};
      run(ctx, p.op);
      std::vector<double> got = to_doubles(p.dx.view()), more = to_doubles(p.dweights.view());
      got.insert(got.end(), more.begin(), more.end());
      for (const auto* list : {&p.dup, &p.dgate, &p.ddown}) {
        for (const MutView& v : *list) {
          more = to_doubles(v);
          got.insert(got.end(), more.begin(), more.end());
        }
      }
      ASSERT_EQ(got.size(), gradient.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], gradient[i], 1e-5) << i;
    }
  }
}

// NaN in x or dy of a token is NaN in its gradients, and in those of the weights of its experts.
TEST(ExpertsBackward, NanIsSeen) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const bool gated : {false, true}) {
      for (const ExpertAct act : {ExpertAct::relu2, ExpertAct::silu}) {
        for (const bool in_x : {false, true}) {
          BackwardProblem p({5}, 2, 4, 37, 24, type, gated, act);
          set_element((in_x ? p.forward.x : p.dy).mut(), 2 * 24 + 7, NAN);
          Arena arena;
          Ctx ctx{.arena = arena};
          for (const Row<ExpertsBwd>& row : ExpertsBwd::rows()) {
            if (row.device != Device::cpu || !row.run || (row.supports && row.supports(p.op))) continue;
            OwnOutputs<ExpertsBwd> own(p.op);
            run_row(ctx, own.op(), row);
            const ExpertsBwd& got = own.op();
            const std::string where = std::string(row.name) + " " + name_of(type) + (in_x ? " x" : " dy");
            for (int64_t i = 0; i < 5 * 24; ++i) EXPECT_EQ(std::isnan(element(got.dx, i)), i / 24 == 2) << where << i;
            for (int64_t i = 0; i < 5 * 2; ++i)
              EXPECT_EQ(std::isnan(element(got.dweights, i)), i / 2 == 2) << where << " weight " << i;
            for (int32_t e = 0; e < 4; ++e) {
              const bool used = p.forward.experts[4] == e || p.forward.experts[5] == e;
              const auto at = static_cast<size_t>(e);
              EXPECT_EQ(std::isnan(element(got.dup[at], 7)), used) << where << " up of " << e;
              EXPECT_EQ(std::isnan(element(got.ddown[at], 7 * 37)), used) << where << " down of " << e;
              if (!gated) continue;
              EXPECT_EQ(std::isnan(element(got.dgate[at], 7)), used) << where << " gate of " << e;
            }
          }
        }
      }
    }
  }
}

// Saved products are those of the forward, at (token, slot), and give the same bits as recomputed ones.
TEST(ExpertsBackward, SavedProductsChangeNoBits) {
  for (const auto& [type, train] :
       {std::pair{DType::f32, false}, {DType::f32, true}, {DType::bf16, false}, {DType::bf16, true}}) {
    BackwardProblem p({20, 3}, 3, 5, 37, 24, type, true, ExpertAct::silu);
    p.forward.op.train = p.op.train = train;
    TestTensor u(type, {23, 3, 37}, 20), g(type, {23, 3, 37}, 21);
    p.forward.op.u = u.mut();
    p.forward.op.g = g.mut();
    sweep(p.forward.op, 2e-5, 0.05);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, p.forward.op);
    OwnOutputs<ExpertsBwd> recomputed(p.op);
    run(ctx, recomputed.op());
    p.op.u = u.view();
    p.op.g = g.view();
    OwnOutputs<ExpertsBwd> saved(p.op);
    run(ctx, saved.op());
    const bool exact = std::string(ExpertsBwd::rows()[0].name) != "ref";
    expect_outputs(saved.op(), recomputed.op(), 0.05, exact, name_of(type));
  }
}

TEST(ExpertsBackward, ACutBetweenSequencesChangesNoBits) {
  for (const DType type : {DType::f32, DType::bf16}) {
    BackwardProblem whole({5, 33, 2}, 3, 5, 37, 24, type), parts({5, 33, 2}, 3, 5, 37, 24, type);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    run(ctx, whole.op);
    for (const Seq& seq : parts.seqs.seqs) {
      const SeqMap alone = SeqMap::one(seq.len);
      ExpertsBwd op = parts.op;
      for (View* v : {&op.dy, &op.x, &op.experts, &op.weights}) *v = v->slice(0, seq.start, seq.len);
      op.dx = op.dx.slice(0, seq.start, seq.len);
      op.dweights = op.dweights.slice(0, seq.start, seq.len);
      op.seqs = &alone;
      run(ctx, op);
    }
    expect_outputs(parts.op, whole.op, 0, true, "cut");
  }
}

TEST(ExpertsBackward, EveryRowAgreesWithTheReference) {
  struct Case {
    std::vector<int64_t> lens;
    int64_t k, count, hidden, width;
  };
  // One token, more experts than slots (most are empty), K = E, a latent width, odd sizes, an empty sequence.
  for (const Case& c : {Case{{1}, 6, 16, 29, 21}, Case{{7, 1}, 2, 16, 58, 32}, Case{{40, 0, 3}, 3, 4, 58, 32},
                        Case{{3}, 4, 4, 17, 5}, Case{{1}, 1, 1, 1, 1}, Case{{70, 31}, 8, 8, 116, 40}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      sweep(BackwardProblem(c.lens, c.k, c.count, c.hidden, c.width, type).op, 2e-5, 0.1);
      sweep(BackwardProblem(c.lens, c.k, c.count, c.hidden, c.width, type, true, ExpertAct::silu).op, 2e-5, 0.1);
    }
  }
}

// The row of tiles over software tiles, on any machine: against the reference, and the sequences one by one.

TEST(ExpertsBackward, DroppedSlotsAddNothing) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const bool train : {false, true}) {
      BackwardProblem p({30, 0, 9}, 3, 4, 37, 24, type, true);
      p.op.train = train;
      for (size_t i = 0; i < p.forward.experts.size(); i += 1 + i % 4) p.forward.experts[i] = -1;
      for (size_t i = 9; i < 12; ++i) p.forward.experts[i] = -1;  // a whole token
      sweep(p.op, 2e-5, 0.1);
      Arena arena;
      Ctx ctx{.arena = arena};
      run(ctx, p.op);
      for (const double dx : to_doubles(p.dx.view().slice(0, 3, 1))) EXPECT_EQ(dx, 0);
      for (size_t i = 0; i < p.forward.experts.size(); ++i)
        EXPECT_EQ(element(p.dweights.view(), static_cast<int64_t>(i)) == 0, p.forward.experts[i] < 0) << i;
    }
  }
}

TEST(ExpertsBackward, SoftwareTilesAgreeWithTheReferenceAndWithEveryCut) {
  const packed::Kernel tiles = packed::soft_tile_bf16();
  const auto run_tiles = [&](const ExpertsBwd& op, int threads) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    std::vector<std::byte> space(static_cast<size_t>(experts_bwd_workspace(tiles, op, threads)));
    experts_bwd_packed(tiles, ctx, op, space);
  };
  for (const bool gated : {false, true}) {
    const ExpertAct act = gated ? ExpertAct::silu : ExpertAct::relu2;
    BackwardProblem want({5, 70, 0, 2}, 3, 5, 58, 40, DType::bf16, gated, act);
    Arena arena;
    Ctx ctx{.arena = arena};
    ctx.forced_rows = {{"experts_bwd", "ref"}};
    OwnOutputs<ExpertsBwd> reference(want.op), once(want.op), cut(want.op);
    run(ctx, reference.op());
    run_tiles(once.op(), 2);
    expect_outputs(once.op(), reference.op(), 0.1, false, "software tiles");
    for (const Seq& seq : want.seqs.seqs) {
      if (seq.len == 0) continue;
      const SeqMap alone = SeqMap::one(seq.len);
      ExpertsBwd op = cut.op();
      for (View* v : {&op.dy, &op.x, &op.experts, &op.weights}) *v = v->slice(0, seq.start, seq.len);
      op.dx = op.dx.slice(0, seq.start, seq.len);
      op.dweights = op.dweights.slice(0, seq.start, seq.len);
      op.seqs = &alone;
      run_tiles(op, 1);
    }
    expect_outputs(cut.op(), once.op(), 0, true, "cut");
  }
}

// Forward of training on software tiles: against the reference, each token alone, and backward from what it saved.
TEST(ExpertsForward, SoftwareTilesAgreeWithTheReferenceAndSavedProductsChangeNoBits) {
  const packed::Kernel tiles = packed::soft_tile_bf16();
  const auto run_tiles = [&](const auto& op, int threads) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    std::vector<std::byte> space;
    if constexpr (requires { op.dy; }) {
      space.resize(static_cast<size_t>(experts_bwd_workspace(tiles, op, threads)));
      experts_bwd_packed(tiles, ctx, op, space);
    } else {
      space.resize(static_cast<size_t>(experts_fwd_workspace({.packed = &tiles}, op, threads)));
      experts_fwd_grouped({.packed = &tiles}, ctx, op, space);
    }
  };
  for (const bool gated : {false, true}) {
    const ExpertAct act = gated ? ExpertAct::silu : ExpertAct::relu2;
    BackwardProblem p({5, 270, 1}, 3, 5, 58, 40, DType::bf16, gated, act);
    TestTensor u(DType::bf16, {276, 3, 58}, 20), g(DType::bf16, {276, 3, 58}, 21);
    p.forward.op.u = u.mut();
    if (gated) p.forward.op.g = g.mut();
    p.forward.op.train = p.op.train = true;
    Arena arena;
    Ctx ctx{.arena = arena};
    ctx.forced_rows = {{"experts_fwd", "ref"}};
    OwnOutputs<ExpertsFwd> reference(p.forward.op), once(p.forward.op), cut(p.forward.op);
    run(ctx, reference.op());
    run_tiles(once.op(), 2);
    expect_outputs(once.op(), reference.op(), 0.1, false, "software tiles");
    for (int64_t t = 0; t < 276; ++t) {
      ExpertsFwd op = cut.op();
      for (View* v : {&op.x, &op.experts, &op.weights}) *v = v->slice(0, t, 1);
      for (MutView* v : {&op.y, &op.u, &op.g}) {
        if (*v) *v = v->slice(0, t, 1);
      }
      run_tiles(op, 1);
    }
    expect_outputs(cut.op(), once.op(), 0, true, "a token alone");
    OwnOutputs<ExpertsBwd> recomputed(p.op);
    run_tiles(recomputed.op(), 2);
    p.op.u = once.op().u;
    if (gated) p.op.g = once.op().g;
    OwnOutputs<ExpertsBwd> saved(p.op);
    run_tiles(saved.op(), 2);
    expect_outputs(saved.op(), recomputed.op(), 0, true, "saved products");
  }
}

// Gates and up products read one packing of the rows.
// Rows of x are packed for the format of a product: twice where gates have another one than up.
TEST(ExpertsForward, GatesMayHaveAnotherFormat) {
  constexpr int64_t kExperts = 3, kRows = 96, kCols = 256;
  Problem p(7, 2, kExperts, kRows, kCols, DType::bf16, DType::f32, Format::nvfp4, true);
  std::vector<TestWeight> own;
  std::vector<Weight> gates;
  for (int64_t e = 0; e < kExperts; ++e)
    own.emplace_back(GgmlType::q4_k, kRows, kCols, 40 + static_cast<uint64_t>(e), 0.1);
  for (const TestWeight& w : own) gates.push_back(w.weight());
  p.op.gate = gates;
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  ctx.forced_rows = {{"experts_fwd", "ref"}};
  OwnOutputs<ExpertsFwd> reference(p.op);
  run(ctx, reference.op());
  int64_t engines = 0;
  for (const ProductEngine* engine : {&kSoftTiles, &kCodesA16, &kCodesA8}) {
    if (engine->refusal(p.op.up[0]) || engine->refusal(gates[0])) continue;
    ASSERT_FALSE(engine->same_packing(p.op.up[0], gates[0]));
    ++engines;
    OwnOutputs<ExpertsFwd> once(p.op);
    std::vector<std::byte> space(static_cast<size_t>(experts_fwd_workspace({.engine = engine}, once.op(), 2)));
    experts_fwd_grouped({.engine = engine}, ctx, once.op(), space);
    expect_outputs(once.op(), reference.op(), 0.1, false, std::to_string(engines));
  }
  EXPECT_EQ(engines, sys::machine().avx2 ? 3 : 1);
}

// Prompts on software tiles, on any machine: experts of more rows than are packed together, a last block of one row and
// a depth that ends inside of 128 values; each token alone has the same bits.
TEST(ExpertsForward, PromptsOnSoftwareTilesAgreeWithTheReference) {
  const auto run_tiles = [](const ExpertsFwd& op, int threads) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    std::vector<std::byte> space(static_cast<size_t>(experts_fwd_workspace({.engine = &kSoftTiles}, op, threads)));
    experts_fwd_grouped({.engine = &kSoftTiles}, ctx, op, space);
  };
  for (const Format format : {Format::nvfp4, Format::f8_e4m3, Format::bf16}) {
    Problem p(290, 2, 3, 144, 304, DType::bf16, DType::f32, format, format == Format::bf16);
    const Problem other(290, 2, 3, 144, 304, DType::bf16, DType::f32, Format::nvfp4);
    p.up.weights[1] = other.up.weights[1];  // one expert in another format, as recipes and released folders may have
    if (format == Format::bf16) p.gate.weights[1] = other.up.weights[0];
    p.op.up = p.up.weights;
    p.op.gate = p.gate.weights;
    for (size_t i = 0; i < p.experts.size(); i += 2) p.experts[i] = 0;  // 290 rows: a part of 256, one of 34
    Arena arena;
    Ctx ctx{.arena = arena};
    ctx.forced_rows = {{"experts_fwd", "ref"}};
    OwnOutputs<ExpertsFwd> reference(p.op), once(p.op);
    run(ctx, reference.op());
    run_tiles(once.op(), 2);
    expect_outputs(once.op(), reference.op(), 0.1, false, name_of(format));
    for (const int64_t t : {0, 255, 256, 289}) {
      TestTensor y(p.y.view().dtype, {1, 304}, 9);
      ExpertsFwd one = p.op;
      for (View* v : {&one.x, &one.experts, &one.weights}) *v = v->slice(0, t, 1);
      one.y = y.mut();
      run_tiles(one, 1);
      EXPECT_EQ(std::memcmp(y.view().data, once.op().y.as<float>(t), y.bytes.size()), 0) << t;
    }
  }
}

// Frozen experts under adapters: weights of every format, decoded on the fly; more rows of one expert than are computed
// at a time, and more rows of a weight than are decoded at a time. No row but the reference may be missing.
TEST(ExpertsBackward, QuantisedWeightsAreDecoded) {
  for (const Format format : {Format::f16, Format::f8_e4m3, Format::nvfp4}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const bool gated : {false, true}) {
        const ExpertAct act = gated ? ExpertAct::silu : ExpertAct::relu2;
        BackwardProblem small({7, 30}, 2, 5, 48, 32, type, format, gated, act),
            large({260}, 1, 1, 800, 16, type, format, gated, act);
        small.forward.op.train = small.op.train = true;
        for (BackwardProblem* p : {&small, &large}) {
          sweep(p->forward.op, 2e-5, 0.1);
          p->op.dup = p->op.dgate = p->op.ddown = {};
          Arena arena;
          EXPECT_STRNE(choose(Ctx{.arena = arena}, p->op).name, "ref") << name_of(format);
          sweep(p->op, 2e-5, 0.1);
        }
      }
    }
  }
}

// Up and gate in formats of other lengths of rows, whose tasks are cut as those of up.
TEST(ExpertsForward, GatesMayHaveAnotherFormatInTraining) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Problem p(3, 1, 2, 4000, 96, type, type, Format::nvfp4, true, ExpertAct::silu);
    std::vector<TestWeight> gates;
    std::vector<Weight> list;
    for (uint64_t e = 0; e < 2; ++e) gates.emplace_back(Format::f16, 4000, 96, 50 + e, 0.05);
    for (const TestWeight& w : gates) list.push_back(w.weight());
    p.op.gate = list;
    p.op.train = true;
    sweep(p.op, 2e-5, 0.1);
  }
}

// Sorted rows of one expert whose depth blocks are longer than those of all rows, and more columns than are packed at a
// time: what a thread packs is sized for the longest.
TEST(ExpertsBackward, OneExpertOfManyRows) {
  BackwardProblem p({800}, 1, 2, 100, 400);
  for (size_t t = 0; t < 800; ++t) p.forward.experts[t] = t < 700 ? 0 : 1;
  sweep(p.op, 2e-5, 0.1);
}

// Rows of fused projections: x, dy and the weights inside wider tensors, and a dx that is.
TEST(ExpertsBackward, StridedRowsNeedNoCopy) {
  BackwardProblem p({9, 4}, 2, 5, 58, 24);
  TestTensor wide(DType::f32, {13, 100}, 30), dx(DType::f32, {13, 40}, 31);
  p.op.x = wide.view().slice(1, 0, 24);
  p.op.dy = wide.view().slice(1, 30, 24);
  p.op.weights = wide.view().slice(1, 60, 2);
  sweep(p.op, 2e-5);
  OwnOutputs<ExpertsBwd> contiguous(p.op);
  p.op.dx = dx.mut().slice(1, 8, 24);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, contiguous.op());
  run(ctx, p.op);
  for (int64_t t = 0; t < 13; ++t)
    EXPECT_EQ(std::memcmp(p.op.dx.as<float>(t), contiguous.op().dx.as<float>(t), 24 * sizeof(float)), 0);
}

TEST(ExpertsBackward, FrozenAndUnchosenExperts) {
  BackwardProblem p({4}, 1, 3, 8, 8);
  std::fill(p.forward.experts.begin(), p.forward.experts.end(), 1);
  const auto before = p.values;
  sweep(p.op, 2e-5);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, p.op);
  for (const size_t e : {size_t{0}, size_t{2}}) EXPECT_EQ(p.values[2 * e].bytes, before[2 * e].bytes);
  p.op.dup = p.op.ddown = {};
  sweep(p.op, 2e-5);
}

TEST(ExpertsDeathTest, AnInvalidExpertIndexIsABug) {
  for (const int32_t bad : {-2, 6, 1 << 30}) {
    for (const char* row : {"grouped_f32", "ref"}) {
      Problem p(2, 2, 6, 8, 8, DType::f32, DType::f32, Format::f32);
      p.experts[3] = bad;
      Arena arena;
      Ctx ctx{.arena = arena};
      ctx.forced_rows = {{"experts_fwd", row}};
      EXPECT_DEATH(run(ctx, p.op), "token 1 has expert -?[0-9]+ of 6");
    }
  }
}

}  // namespace
}  // namespace braid
