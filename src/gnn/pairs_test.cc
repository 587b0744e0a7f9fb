// Gradients of a value per edge, of every op and every choice of operands, beside the reference in complex<double> by
// complex step. Memory starts as NaN. Tolerances: FP32 sums of up to six terms, 2e-5; quotients 1e-4 of their size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "gnn/edge_ops.h"
#include "gnn/pass_fixture.h"
#include "kernels/sddmm/sddmm_ref.h"

namespace braid::gnn {
namespace {

using Complex = std::complex<double>;

// Rows of 0 to 6 edges, the first and the last without, over 8 senders, of which the first and 6 have none; parallel
// edges.
graph::Graph ragged() {
  return graph::make_graph(
      {.rows = 6, .cols = 8, .rowptr = {0, 0, 3, 4, 10, 11, 11}, .col = {1, 2, 7, 3, 1, 1, 2, 3, 4, 5, 4}});
}

struct PairCase {
  PairOp op;
  int64_t parts;  // of dots
  bool du, dv;
  DType type = DType::f32;
  bool same = false;  // u and v are one tensor
  bool again = false;
};

// Rows that no edge names: what they hold must not show.
void spoil(const TestTensor& t, std::initializer_list<int64_t> rows, double value) {
  const MutView v = const_cast<TestTensor&>(t).mut();
  for (const int64_t row : rows)
    for (int64_t c = 0; c < v.dim(1); ++c) set_element(v, row * v.dim(1) + c, value);
}

// dL/du and dL/dv of L = sum(dy * y).
void expect_pair_gradients(const PairCase& k, double unused) {
  SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(k.op) << " parts " << k.parts << " du " << k.du << " dv "
                                  << k.dv << " same " << k.same << " type " << name_of(k.type));
  constexpr int64_t kWidth = 6;
  graph::Graph graph = ragged();
  if (k.same) {
    graph.in.rows = 8;  // receivers are the senders
    graph.in.rowptr.insert(graph.in.rowptr.end(), 2, graph.in.rowptr.back());
    graph = graph::make_graph(graph.in);
  }
  const int64_t rows = graph.rows(), values = k.op == PairOp::dot ? k.parts : kWidth;
  TestTensor u(k.type, {rows, kWidth}, 1, 0.5, 1.5), v(k.type, {8, kWidth}, k.same ? 1 : 2, 0.5, 1.5);
  for (const TestTensor* t : {&u, &v}) {  // divisors far from 0
    const MutView all = const_cast<TestTensor*>(t)->mut();
    for (int64_t i = 0; i < all.count(); ++i)
      set_element(all, i, (i % 3 == 0 ? -1 : 1) * std::max(0.5, std::fabs(element(all, i))));
  }
  if (!k.same) spoil(u, {0, 5}, unused), spoil(v, {0, 6}, unused);
  const TestTensor dy(DType::f32, {graph.edges(), values}, 3);
  Pass pass(1, true);
  const bool reads_u = k.op != PairOp::copy_v, reads_v = k.op != PairOp::copy_u;
  const Tensor tu = reads_u ? pass.tensor(u, k.du) : Tensor(), tv = !reads_v ? Tensor()
                                                                    : k.same ? tu
                                                                             : pass.tensor(v, k.dv);
  // What the op reads is freed after it, unless the backward pass asks for it.
  const auto copy = [&](const Tensor& t) { return t ? nn::scaled(pass.run, t, 1, k.type) : t; };
  Tensor y;
  {
    const Tensor left = copy(tu), right = k.same ? left : copy(tv);
    y = pair_values(pass.run, graph, left, right, {.op = k.op, .parts = k.parts, .again = k.again});
  }
  const Tensor overwrites(pass.arena, DType::f32, {64, kWidth});
  fill(overwrites.mut(), 1e6);
  pass.tape.add_grad(pass.ctx, y, pass.tensor(dy, false));
  pass.tape.backward(pass.ctx);

  std::vector<double> inputs = to_doubles(u.view());
  const auto nu = std::ssize(inputs);
  if (!k.same) {
    const std::vector<double> second = to_doubles(v.view());
    inputs.insert(inputs.end(), second.begin(), second.end());
  }
  for (double& x : inputs) x = std::isfinite(x) ? x : 0;
  const SddmmFwd op{.rowptr = graph.in.rowptr_view(), .col = graph.in.col_view(), .op = k.op};
  const std::vector<double> weights = to_doubles(dy.view());
  const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& z) {
    const std::vector<Complex> first(z.begin(), z.begin() + nu), second(k.same ? z.begin() : z.begin() + nu, z.end());
    std::vector<Complex> out(weights.size());
    sddmm_ref(op, kWidth, values, reads_u ? first : std::vector<Complex>(), {},
              reads_v ? second : std::vector<Complex>(), {}, out);
    return std::inner_product(out.begin(), out.end(), weights.begin(), Complex(0));
  });
  const auto expect = [&](const Tensor& value, int64_t first, const char* what) {
    const Tensor got = pass.tape.grad(value);
    ASSERT_TRUE(got) << what;
    for (int64_t i = 0; i < got.view().count(); ++i) {
      const double want = gradient[static_cast<size_t>(first + i)];
      EXPECT_NEAR(element(got.view(), i), want, 2e-5 * std::max(1.0, std::fabs(want))) << what << " " << i;
    }
  };
  if (k.same && (k.du || k.dv)) expect(tu, 0, "du + dv");
  if (!k.same && reads_u && k.du) expect(tu, 0, "du");
  if (!k.same && reads_v && k.dv) expect(tv, nu, "dv");
  pass.tape.clear();
}

constexpr PairOp kPairOps[] = {PairOp::dot, PairOp::add,    PairOp::sub,   PairOp::mul,
                               PairOp::div, PairOp::copy_u, PairOp::copy_v};

TEST(PairValues, GradientsOfEveryOpAndOperand) {
  for (const PairOp op : kPairOps) {
    for (const int64_t parts : {1, 2, 6}) {
      if (op != PairOp::dot && parts > 1) continue;
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const auto& [du, dv] : {std::pair{true, true}, {true, false}, {false, true}}) {
          if ((op == PairOp::copy_u && !du) || (op == PairOp::copy_v && !dv)) continue;
          for (const double unused : {0.0, static_cast<double>(NAN)})
            expect_pair_gradients({op, parts, du, dv, type}, unused);
        }
      }
    }
  }
}

// One set of nodes at both ends: the gradients add up.
TEST(PairValues, GradientsOfOneTensorAtBothEnds) {
  for (const PairOp op : {PairOp::dot, PairOp::add, PairOp::sub, PairOp::mul, PairOp::div})
    for (const bool again : {false, true}) expect_pair_gradients({op, 1, true, true, DType::f32, true, again}, 0);
}

TEST(PairValues, OfAGraphWithoutEdgesGradientsAreZero) {
  const graph::Graph graph = graph::make_graph({.rows = 3, .cols = 2, .rowptr = {0, 0, 0, 0}});
  for (const PairOp op : kPairOps) {
    Pass pass(1, true);
    const TestTensor u(DType::f32, {3, 4}, 1), v(DType::f32, {2, 4}, 2);
    const Tensor tu = op != PairOp::copy_v ? pass.tensor(u, true) : Tensor(),
                 tv = op != PairOp::copy_u ? pass.tensor(v, true) : Tensor();
    const Tensor y = pair_values(pass.run, graph, tu, tv, {.op = op});
    ASSERT_EQ(y.view().dim(0), 0);
    pass.tape.add_grad(pass.ctx, y, Tensor(pass.arena, DType::f32, y.shape()));
    pass.tape.backward(pass.ctx);
    for (const Tensor& t : {tu, tv}) {
      if (!t) continue;
      const Tensor got = pass.tape.grad(t);
      ASSERT_TRUE(got);
      for (int64_t i = 0; i < got.view().count(); ++i) EXPECT_EQ(element(got.view(), i), 0);
    }
    pass.tape.clear();
  }
}

}  // namespace
}  // namespace braid::gnn
