// Gradients of every (op, reduce) through the tape, from the reference in complex<double> by complex step; and layers
// against sums over the edges as their papers write them. Tolerances: FP32 sums of some tens of terms, 2e-5.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "gnn/edge_ops.h"
#include "gnn/network.h"
#include "gnn/pass_fixture.h"
#include "graph/generate.h"
#include "graph/sample.h"
#include "kernels/spmm/spmm_ref.h"
#include "support/error_of.h"
#include "sys/parallel.h"

namespace braid::gnn {
namespace {

// Rows of 0 to 5 edges over 7 sources, of which the first 5 receive; parallel edges.
graph::Graph test_graph() {
  return graph::make_graph(
      {.rows = 5, .cols = 7, .rowptr = {0, 3, 3, 5, 10, 11}, .col = {1, 2, 6, 0, 0, 0, 2, 3, 4, 5, 4}});
}

using Complex = std::complex<double>;

struct Case {
  EdgeOp op;
  Reduce reduce;
  int64_t width, values;
  bool self, add, constant;
};

// dL/dx, dL/dedge and dL/dadd of L = sum(dy * y).
void expect_gradients(const Case& c) {
  SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(c.op) << " reduce " << static_cast<int>(c.reduce)
                                  << " values " << c.values << " self " << c.self << " constant " << c.constant);
  const Block block = make_sampled_block(test_graph());
  const bool has_x = c.op != EdgeOp::copy_e, has_edge = c.op != EdgeOp::copy_x;
  const TestTensor x(DType::f32, {7, c.width}, 1), edge(DType::f32, {11, c.values}, 2, 0.3, 1.5),
      add(DType::f32, {5, c.width}, 3), self(DType::f32, {5}, 4), dy(DType::f32, {5, c.width}, 5);
  Pass pass(7);
  Messages m{.op = c.op, .reduce = c.reduce, .own = c.self ? 0.5f : 0};
  const Tensor tx = has_x ? pass.tensor(x, true) : Tensor();
  if (has_edge && !c.constant) m.edge = pass.tensor(edge, true);
  if (has_edge && c.constant) m.weights = edge.view();
  if (c.self) m.self = self.view();
  if (c.add) m.add = pass.tensor(add, true);
  const Tensor y = aggregate(pass.run, block, tx, m, DType::f32);
  pass.tape.add_grad(pass.ctx, y, pass.tensor(dy, false));
  pass.tape.backward(pass.ctx);

  const std::vector<double> weights = to_doubles(dy.view()), vx = to_doubles(x.view()), ve = to_doubles(edge.view()),
                            va = to_doubles(add.view());
  std::vector<double> inputs = vx;
  inputs.insert(inputs.end(), ve.begin(), ve.end());
  inputs.insert(inputs.end(), va.begin(), va.end());
  const auto nx = std::ssize(vx), ne = std::ssize(ve);
  const SpmmFwd op{.rowptr = block.graph.in.rowptr_view(),
                   .col = block.graph.in.col_view(),
                   .own = m.own,
                   .op = c.op,
                   .reduce = c.reduce};
  const auto gradient = complex_step(inputs, [&](const std::vector<Complex>& z) {
    SpmmRef<Complex> in{.rows = 5, .width = c.width, .values = has_edge ? c.values : 0};
    if (has_x) in.x = {z.begin(), z.begin() + nx};
    if (has_edge) in.edge = {z.begin() + nx, z.begin() + nx + ne};
    if (c.add) in.add = {z.begin() + nx + ne, z.end()};
    if (c.self) {
      for (const double v : to_doubles(self.view())) in.self.emplace_back(v);
    }
    std::vector<Complex> out(weights.size());
    std::vector<double> none;
    spmm_ref(op, in, out, none);
    return std::inner_product(out.begin(), out.end(), weights.begin(), Complex(0));
  });
  const auto expect = [&](const Tensor& value, int64_t first, const char* what) {
    if (!value) return;
    const Tensor got = pass.tape.grad(value);
    ASSERT_TRUE(got) << what;
    for (int64_t i = 0; i < got.view().count(); ++i)
      EXPECT_NEAR(element(got.view(), i), gradient[static_cast<size_t>(first + i)], 2e-5) << what << " " << i;
  };
  expect(tx, 0, "dx");
  expect(m.edge, nx, "dedge");
  expect(m.add, nx + ne, "dadd");
  pass.tape.clear();
}

TEST(Aggregate, GradientsOfEveryOpAndReduction) {
  for (const EdgeOp op : {EdgeOp::copy_x, EdgeOp::copy_e, EdgeOp::add, EdgeOp::sub, EdgeOp::mul, EdgeOp::div}) {
    for (const Reduce reduce : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min}) {
      for (const int64_t values : {1, 2, 6}) {
        if (op == EdgeOp::copy_e && values != 6) continue;  // the width of y is that of the edges
        for (const bool constant : {false, true}) {
          if (constant && (op == EdgeOp::copy_e || op == EdgeOp::copy_x)) continue;
          const bool self = reduce == Reduce::sum && op != EdgeOp::copy_e;
          expect_gradients({op, reduce, 6, values, false, false, constant});
          if (self) expect_gradients({op, reduce, 6, values, true, false, constant});
          if (picks(reduce)) expect_gradients({op, reduce, 6, values, false, true, constant});
        }
      }
    }
  }
}

// A layer over a graph of 7 nodes, parameters and features of its own.
struct Layered {
  LayerSpec spec;
  std::vector<LayerParam> params;
  std::vector<TestTensor> values;
  std::vector<Param> list;
  Block block;
  TestTensor x;

  explicit Layered(const LayerSpec& s)
      : Layered(s, {.rows = 7,
                    .cols = 7,
                    .rowptr = {0, 3, 3, 5, 9, 10, 12, 12},
                    .col = {1, 2, 6, 0, 1, 1, 2, 4, 5, 3, 0, 6}}) {}
  Layered(const LayerSpec& s, const graph::Csr& csr)
      : spec(s),
        params(params_of(s)),
        block(block_for(s.kind, s.rewrites, graph::make_graph(csr))),
        x(DType::f32, {csr.rows, s.in}, 99) {
    for (size_t i = 0; i < params.size(); ++i) values.emplace_back(DType::f32, params[i].shape, i + 1);
    for (size_t i = 0; i < params.size(); ++i) {
      const Shape& shape = params[i].shape;
      const int64_t rows = shape.rank != 2 ? 1 : params[i].transposed ? shape[1] : shape[0];
      Param& p = list.emplace_back();
      p.value = dense_weight(View(values[i].view().data, DType::f32, {rows, shape.count() / rows}));
    }
  }
  std::vector<double> forward(int threads = 1) {
    Pass pass(block.cols());
    pass.ctx.tape = nullptr;
    pass.ctx.threads = threads;
    const auto layer = make_layer(spec, list);
    return to_doubles(layer->forward(pass.run, block, pass.tensor(x, false), DType::f32).view());
  }
  double at(size_t param, int64_t i) const { return element(values[param].view(), i); }
  double degree(int64_t i) const { return static_cast<double>(block.graph.in.degree(i)); }
  template <class Visit>
  void each_source(int64_t i, Visit&& visit) const {
    const graph::Csr& in = block.graph.in;
    for (int64_t e = in.rowptr[static_cast<size_t>(i)]; e < in.rowptr[static_cast<size_t>(i) + 1]; ++e)
      visit(int64_t{in.col[static_cast<size_t>(e)]});
  }
  double feature(int64_t i, int64_t c) const { return element(x.view(), i * spec.in + c); }
};

void expect_close(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 3e-5) << i;
}

// Both orders of product and aggregation: wider, and narrower, outputs than inputs.
// Layers that are not fused number the edges, self-loops too.
TEST(Layer, EdgesAreNumbersOf32Bits) {
  EXPECT_EQ(support::error_of([] { check_edge_blocks((int64_t{1} << 31) - 8, 7); }), "");
  EXPECT_NE(support::error_of([] { check_edge_blocks((int64_t{1} << 31) - 8, 8); }).find("too many edges"),
            std::string::npos);
}

TEST(Layer, GcnNormalisesWithSelfLoops) {
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{3, 8}, {8, 3}}) {
    Layered l({.kind = Kind::gcn, .in = in, .out = out});
    std::vector<double> want;
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t o = 0; o < l.spec.out; ++o) {
        double sum = 0;
        const auto add = [&](int64_t j) {
          double product = 0;
          for (int64_t c = 0; c < l.spec.in; ++c) product += l.feature(j, c) * l.at(0, o * l.spec.in + c);
          sum += product / std::sqrt((l.degree(i) + 1) * (l.degree(j) + 1));
        };
        l.each_source(i, add);
        add(i);
        want.push_back(sum + l.at(1, o));
      }
    }
    expect_close(l.forward(), want);
  }
}

// In the mean over many draws a sampled layer is the whole one.
TEST(Layer, SamplesOfGcnAreUnbiased) {
  const graph::Csr whole =
      graph::csr_of(9, {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {0, 1}, {6, 1}, {7, 2}, {8, 2}, {1, 2}});
  Layered l({.kind = Kind::gcn, .in = 3, .out = 4}, whole);
  const std::vector<double> want = l.forward();
  const std::vector<int32_t> seeds = {2, 0, 1};
  constexpr int64_t kDraws = 4000;
  std::vector<double> mean(12);
  for (const bool fuse : {true, false}) {
    l.spec.rewrites.fuse = fuse;
    std::fill(mean.begin(), mean.end(), 0.0);
    for (int64_t draw = 0; draw < kDraws; ++draw) {
      graph::Sample sample =
          graph::sample_neighbours(whole, seeds, 1, 2, {.seed = 1, .step = static_cast<uint64_t>(draw)});
      Block block = make_sampled_block(std::move(sample.blocks[0]));
      add_sampled_values(block, l.block, sample.nodes);
      if (!fuse) add_edge_blocks(block);
      Pass pass(block.cols());
      pass.ctx.tape = nullptr;
      const Tensor x(pass.arena, DType::f32, {block.cols(), 3});
      for (int64_t i = 0; i < block.cols(); ++i) {
        for (int64_t c = 0; c < 3; ++c)
          set_element(x.mut(), 3 * i + c, l.feature(sample.nodes[static_cast<size_t>(i)], c));
      }
      const std::vector<double> y =
          to_doubles(make_layer(l.spec, l.list)->forward(pass.run, block, x, DType::f32).view());
      for (size_t i = 0; i < y.size(); ++i) mean[i] += y[i] / kDraws;
    }
    for (size_t i = 0; i < mean.size(); ++i)
      EXPECT_NEAR(mean[i], want[static_cast<size_t>(seeds[i / 4]) * 4 + i % 4], 0.05) << i;
  }
}

// The edge function is applied to every edge here; nodes without edges give 0.
TEST(Layer, EdgeConvIsTheMaximumOrMinimumOfAnEdgeFunction) {
  for (const Reduce reduce : {Reduce::max, Reduce::min}) {
    const double sign = reduce == Reduce::max ? 1 : -1;
    Layered l({.kind = Kind::edgeconv, .in = 4, .out = 5, .aggregate = reduce});
    std::vector<double> want;
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t o = 0; o < 5; ++o) {
        double best = -INFINITY;
        l.each_source(i, [&](int64_t j) {
          double value = l.at(1, o);
          for (int64_t c = 0; c < 4; ++c)
            value +=
                l.at(0, o * 8 + c) * l.feature(i, c) + l.at(0, o * 8 + 4 + c) * (l.feature(j, c) - l.feature(i, c));
          best = std::max(best, sign * value);
        });
        want.push_back(std::isinf(best) ? 0 : sign * best);
      }
    }
    expect_close(l.forward(), want);
  }
}

// Large enough that every op divides its work: aggregations of 400,000 operations, and one row of a tenth of the edges.
TEST(Layer, ThreadsChangeNoBit) {
  std::vector<graph::Edge> edges;
  const graph::Csr uniform = graph::uniform_graph(3000, 20000, 5);
  for (int32_t i = 0; i < uniform.rows; ++i) {
    if (i > 0 && i % 2 == 0) edges.push_back({i, 0});
    for (int64_t e = uniform.rowptr[static_cast<size_t>(i)]; e < uniform.rowptr[static_cast<size_t>(i) + 1]; ++e)
      edges.push_back({uniform.col[static_cast<size_t>(e)], i});
  }
  const graph::Csr csr = graph::csr_of(uniform.rows, edges);
  ASSERT_GT(sys::team_for(3, 2.0 * 8 * static_cast<double>(csr.edges())), 1);
  for (const Kind kind : {Kind::gcn, Kind::sage, Kind::gin, Kind::gat, Kind::edgeconv, Kind::monet}) {
    Layered l({.kind = kind,
               .in = 12,
               .out = 8,
               .heads = kind == Kind::gat ? 2 : 1,
               .kernels = kind == Kind::monet ? 3 : 1,
               .aggregate = kind == Kind::edgeconv ? Reduce::max : Reduce::sum},
              csr);
    const std::vector<double> one = l.forward(1);
    EXPECT_TRUE(std::ranges::all_of(one, [](double v) { return std::isfinite(v); }));
    EXPECT_EQ(one, l.forward(3)) << static_cast<int>(kind);
  }
}

TEST(Network, ChannelsFollowHeadsAndTheLastLayerGivesTheClasses) {
  const auto layers = layers_of({.kind = Kind::gat,
                                 .layers = 3,
                                 .features = 10,
                                 .hidden = 4,
                                 .classes = 5,
                                 .heads = 3,
                                 .aggregate = Reduce::sum});
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].out, 12);
  EXPECT_EQ(layers[1].in, 12);
  EXPECT_EQ(layers[1].heads, 3);
  EXPECT_EQ(layers[2].out, 5);
  EXPECT_EQ(layers[2].heads, 1);
  EXPECT_EQ(params_of(NetworkSpec{.kind = Kind::sage, .features = 2, .hidden = 3, .classes = 2})[3].name,
            "1.lin_l.weight");
}

}  // namespace
}  // namespace braid::gnn
