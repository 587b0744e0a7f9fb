// Products with an adapter: one of zeros changes no bit, the sum matches the merged weight, and the gradients of A, B
// and x match finite differences.
#include <gtest/gtest.h>

#include <cstring>

#include "core/op_sweep.h"
#include "nn/ops.h"

namespace braid::nn {
namespace {

constexpr int64_t kTokens = 5, kWide = 18, kOut = 11, kRank = 3;

struct Adapted {
  TestTensor x{DType::f32, {kTokens, kWide}, 1}, w{DType::f32, {kOut, kWide}, 2}, a{DType::f32, {kRank, kWide}, 3},
      b{DType::f32, {kOut, kRank}, 4}, dy{DType::f32, {kTokens, kOut}, 5}, da{DType::f32, {kRank, kWide}, 6},
      db{DType::f32, {kOut, kRank}, 7};
  Adapter adapter{};
  Param param{};
  Draws draws{.seed = 9, .step = 4};

  explicit Adapted(float dropout = 0) {
    fill(da.mut(), 0);
    fill(db.mut(), 0);
    adapter.a = Param{{.name = "a"}, dense_weight(a.view()), da.mut()};
    adapter.b = Param{{.name = "b"}, dense_weight(b.view()), db.mut()};
    adapter.scale = 0.75f;
    adapter.dropout = dropout;
    param = Param{{.name = "w"}, dense_weight(w.view())};
    param.adapter = &adapter;
  }

  Tensor input(Arena& arena, DType dtype) const {
    const Tensor t(arena, dtype, {kTokens, kWide});
    for (int64_t i = 0; i < t.view().count(); ++i) set_element(t.mut(), i, element(x.view(), i));
    return t;
  }
  // sum(dy * y), without a tape
  double value(const TestTensor& moved, int64_t at, double by) {
    const MutView place = const_cast<TestTensor&>(moved).mut();
    const double before = element(place, at);
    set_element(place, at, before + by);
    Arena arena;
    Ctx ctx{.arena = arena};
    const SeqMap seqs = SeqMap::one(kTokens);
    StateView state;
    Run run{.ctx = ctx, .seqs = seqs, .state = state, .draws = &draws};
    const Tensor y = linear(run, input(arena, DType::f32), param);
    double sum = 0;
    for (int64_t i = 0; i < y.view().count(); ++i) sum += element(y.view(), i) * element(dy.view(), i);
    set_element(place, at, before);
    return sum;
  }
  void expect_differences(const TestTensor& moved, const View& grad) {
    for (int64_t i = 0; i < grad.count(); ++i)  // linear in each: any step will do
      EXPECT_NEAR(element(grad, i), (value(moved, i, 1) - value(moved, i, -1)) / 2, 2e-5) << i;
  }
};

void expect_gradients(float dropout) {
  Adapted test(dropout);
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena};
  ctx.tape = &tape;
  const SeqMap seqs = SeqMap::one(kTokens);
  StateView state;
  Run run{.ctx = ctx, .seqs = seqs, .state = state, .draws = &test.draws};
  const Tensor x = test.input(arena, DType::f32);
  tape.require_grad(x);
  const Tensor y = linear(run, x, test.param), dy(arena, DType::f32, {kTokens, kOut});
  std::memcpy(dy.mut().data, test.dy.view().data, static_cast<size_t>(dy.view().bytes()));
  tape.add_grad(ctx, y, dy);
  tape.backward(ctx);
  test.expect_differences(test.a, test.da.view());
  test.expect_differences(test.b, test.db.view());
  test.expect_differences(test.x, tape.grad(x).view());
  tape.clear();
}

TEST(Adapter, GradientsMatchFiniteDifferences) { expect_gradients(0); }
TEST(Adapter, GradientsWithDropoutMatchFiniteDifferences) { expect_gradients(0.4f); }

Tensor forward(Adapted& test, Arena& arena, DType act, DType out, bool adapted, const Draws* draws = nullptr,
               uint32_t use = 0) {
  Ctx ctx{.arena = arena};
  const SeqMap seqs = SeqMap::one(kTokens);
  StateView state;
  Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::training(act), .draws = draws, .use = use};
  test.param.adapter = adapted ? &test.adapter : nullptr;
  return linear(run, test.input(arena, act), test.param, out);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.view().bytes())) == 0;
}

TEST(Adapter, OneOfZerosChangesNoBit) {
  for (const DType act : {DType::f32, DType::bf16}) {
    for (const DType out : {DType::f32, DType::bf16}) {
      Adapted test;
      Arena arena;
      EXPECT_FALSE(same_bits(forward(test, arena, act, out, true), forward(test, arena, act, out, false)));
      fill(test.b.mut(), 0);
      EXPECT_TRUE(same_bits(forward(test, arena, act, out, true), forward(test, arena, act, out, false)));
    }
  }
}

TEST(Adapter, DropsOnlyWhereAPassDraws) {
  Adapted test(0.5f);
  Arena arena;
  const Draws draws{.seed = 1, .step = 2}, later{.seed = 1, .step = 3};
  const auto y = [&](const Draws* d) { return forward(test, arena, DType::f32, DType::f32, true, d); };
  EXPECT_TRUE(same_bits(y(&draws), y(&draws)));
  EXPECT_FALSE(same_bits(y(&draws), y(&later)));
  EXPECT_FALSE(same_bits(y(&draws), y(nullptr)));
  EXPECT_FALSE(same_bits(y(&draws), forward(test, arena, DType::f32, DType::f32, true, &draws, 1))) << "the next use";
}

}  // namespace
}  // namespace braid::nn
