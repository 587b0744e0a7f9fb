// Scores of pairs, readouts and layers between two types of nodes, beside sums over edges written out. Tolerances: FP32
// sums of some tens of terms, 3e-5.
#include <gtest/gtest.h>

#include <cmath>

#include "core/op_sweep.h"
#include "gnn/bipartite.h"
#include "gnn/edge_ops.h"
#include "gnn/network.h"

namespace braid::gnn {
namespace {

// A pass over values of its own.
struct TaskPass {
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .tape = &tape};
  SeqMap seqs = SeqMap::one(1);
  nn::StateView none;
  Run run{.ctx = ctx, .seqs = seqs, .state = none};

  Tensor tensor(const TestTensor& from) {
    const Tensor t(arena, from.dtype, from.shape);
    for (int64_t i = 0; i < t.view().count(); ++i) set_element(t.mut(), i, element(from.view(), i));
    return t;
  }
};

// The parameters of a network with random values.
struct TaskParams {
  std::vector<TestTensor> values{};
  std::vector<Param> list{};
  explicit TaskParams(const std::vector<LayerParam>& params) {
    for (size_t i = 0; i < params.size(); ++i) values.emplace_back(DType::f32, params[i].shape, i + 1);
    for (size_t i = 0; i < params.size(); ++i) {
      const Shape& shape = params[i].shape;
      const int64_t rows = shape.rank == 2 ? shape[0] : 1;
      list.emplace_back().value = dense_weight(View(values[i].view().data, DType::f32, {rows, shape.count() / rows}));
    }
  }
  double at(size_t param, int64_t i) const { return element(values[param].view(), i); }
};

template <class Visit>
void each_edge(const graph::Csr& in, Visit&& visit) {
  for (int64_t i = 0; i < in.rows; ++i) {
    for (int64_t e = in.rowptr[static_cast<size_t>(i)]; e < in.rowptr[static_cast<size_t>(i) + 1]; ++e)
      visit(i, int64_t{in.col[static_cast<size_t>(e)]}, e);
  }
}

// Four nodes that receive, the second of which nothing; five that send; parallel pairs.
graph::Graph two_types() {
  return graph::make_graph({.rows = 4, .cols = 5, .rowptr = {0, 2, 2, 5, 6}, .col = {1, 4, 0, 1, 1, 3}});
}

TEST(PairDots, ScoresAndGradientsAreThoseOfTheFormula) {
  const graph::Graph pairs = two_types();
  const TestTensor u(DType::f32, {4, 6}, 1), v(DType::f32, {5, 6}, 2), dy(DType::f32, {6, 1}, 3);
  TaskPass pass;
  const Tensor tu = pass.tensor(u), tv = pass.tensor(v);
  pass.tape.require_grad(tu);
  pass.tape.require_grad(tv);
  const Tensor y = pair_values(pass.run, pairs, tu, tv, {});
  pass.tape.add_grad(pass.ctx, y, pass.tensor(dy));
  pass.tape.backward(pass.ctx);
  std::vector<double> du(4 * 6), dv(5 * 6);
  each_edge(pairs.in, [&](int64_t i, int64_t j, int64_t e) {
    double dot = 0;
    for (int64_t c = 0; c < 6; ++c) {
      dot += element(u.view(), i * 6 + c) * element(v.view(), j * 6 + c);
      du[static_cast<size_t>(i * 6 + c)] += element(dy.view(), e) * element(v.view(), j * 6 + c);
      dv[static_cast<size_t>(j * 6 + c)] += element(dy.view(), e) * element(u.view(), i * 6 + c);
    }
    EXPECT_NEAR(element(y.view(), e), dot, 3e-5);
  });
  const Tensor got_u = pass.tape.grad(tu), got_v = pass.tape.grad(tv);
  for (int64_t i = 0; i < 24; ++i) EXPECT_NEAR(element(got_u.view(), i), du[static_cast<size_t>(i)], 3e-5);
  for (int64_t i = 0; i < 30; ++i) EXPECT_NEAR(element(got_v.view(), i), dv[static_cast<size_t>(i)], 3e-5);
  pass.tape.clear();
}

// Both directions of a layer: W_l mean(x_j) + b_l + W_r x_i, over the edges and over their reverse.
TEST(Bipartite, BothTypesReceiveFromTheOther) {
  const BipartiteSpec spec{.layers = 1, .features_a = 3, .features_b = 2, .hidden = 9, .out = 4};
  const std::vector<LayerParam> params = params_of(spec);
  ASSERT_EQ(params.size(), 6u);
  EXPECT_EQ(params[0].name, "0.to_b.lin_l.weight");
  EXPECT_EQ(params[0].shape, (Shape{4, 3}));
  EXPECT_EQ(params[2].shape, (Shape{4, 2}));
  EXPECT_EQ(params[5].name, "0.to_a.lin_r.weight");
  TaskParams own(params);
  const Block to_b = make_sampled_block(two_types()), to_a = make_sampled_block(graph::make_graph(to_b.graph.out));
  const TestTensor a(DType::f32, {5, 3}, 21), b(DType::f32, {4, 2}, 22);
  TaskPass pass;
  pass.ctx.tape = nullptr;
  const auto y =
      BipartiteNetwork(spec, own.list).forward(pass.run, to_b, to_a, {.a = pass.tensor(a), .b = pass.tensor(b)});
  const auto expect = [&](const Tensor& got, const graph::Csr& in, const TestTensor& from, const TestTensor& to,
                          size_t first) {
    const int64_t width = from.shape[1], own_width = to.shape[1];
    std::vector<double> mean(static_cast<size_t>(in.rows * width));
    each_edge(in, [&](int64_t i, int64_t j, int64_t) {
      for (int64_t c = 0; c < width; ++c)
        mean[static_cast<size_t>(i * width + c)] +=
            element(from.view(), j * width + c) / static_cast<double>(in.degree(i));
    });
    for (int64_t i = 0; i < in.rows; ++i) {
      for (int64_t o = 0; o < 4; ++o) {
        double want = own.at(first + 1, o);
        for (int64_t c = 0; c < width; ++c)
          want += own.at(first, o * width + c) * mean[static_cast<size_t>(i * width + c)];
        for (int64_t c = 0; c < own_width; ++c)
          want += own.at(first + 2, o * own_width + c) * element(to.view(), i * own_width + c);
        EXPECT_NEAR(element(got.view(), i * 4 + o), want, 3e-5) << i << " " << o;
      }
    }
  };
  expect(y.b, to_b.graph.in, a, b, 0);
  expect(y.a, to_a.graph.in, b, a, 3);
}

// lin applied to the mean, sum and maximum of the rows of each graph; the network's one layer is that without readout.
TEST(Readout, ReducesTheNodesOfEachGraph) {
  const graph::Csr edges{.rows = 5, .cols = 5, .rowptr = {0, 1, 2, 3, 5, 6}, .col = {1, 0, 3, 2, 4, 3}};
  const Block block = make_block(graph::make_graph(edges), EdgeValues::none),
              members = make_sampled_block(
                  graph::make_graph({.rows = 2, .cols = 5, .rowptr = {0, 2, 5}, .col = {0, 1, 2, 3, 4}}));
  const Block* blocks[] = {&block};
  const TestTensor x(DType::f32, {5, 3}, 40);
  for (const Reduce reduce : {Reduce::mean, Reduce::sum, Reduce::max}) {
    NetworkSpec spec{.kind = Kind::gin, .layers = 1, .features = 3, .hidden = 4, .classes = 2, .readout = reduce};
    TaskParams own(params_of(spec));
    TaskPass pass;
    pass.ctx.tape = nullptr;
    const Tensor y = Network(spec, own.list).forward(pass.run, blocks, pass.tensor(x), &members);
    ASSERT_EQ(y.shape(), (Shape{2, 2}));
    spec.readout.reset();
    spec.classes = 4;
    const Tensor h = Network(spec, std::span(own.list).first(4)).forward(pass.run, blocks, pass.tensor(x));
    for (int64_t g = 0; g < 2; ++g) {
      const int64_t begin = g == 0 ? 0 : 2, end = g == 0 ? 2 : 5;
      for (int64_t o = 0; o < 2; ++o) {
        double want = own.at(5, o);
        for (int64_t c = 0; c < 4; ++c) {
          double pooled = reduce == Reduce::max ? -INFINITY : 0;
          for (int64_t i = begin; i < end; ++i) {
            const double value = element(h.view(), i * 4 + c);
            pooled = reduce == Reduce::max ? std::max(pooled, value) : pooled + value;
          }
          if (reduce == Reduce::mean) pooled /= static_cast<double>(end - begin);
          want += own.at(4, o * 4 + c) * pooled;
        }
        EXPECT_NEAR(element(y.view(), g * 2 + o), want, 1e-4) << g << " " << o;
      }
    }
  }
}

}  // namespace
}  // namespace braid::gnn
