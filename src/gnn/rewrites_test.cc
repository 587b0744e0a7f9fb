// Rewrites change no result and no gradient beyond rounding, each alone and all together, and each saves what it says:
// operations, bytes or memory. Tolerance: FP32 sums of some tens of terms in another order, 5e-5.
#include "gnn/rewrites.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "gnn/network.h"
#include "graph/generate.h"
#include "support/error_of.h"
#include "sys/parallel.h"

namespace braid::gnn {
namespace {

constexpr Kind kKinds[] = {Kind::gcn, Kind::sage, Kind::gin, Kind::gat, Kind::edgeconv, Kind::monet};

NetworkSpec network(Kind kind) {
  return {.kind = kind,
          .layers = 2,
          .features = 12,
          .hidden = 5,
          .classes = 3,
          .heads = kind == Kind::gat ? 2 : 1,
          .kernels = kind == Kind::monet ? 2 : 1,
          .eps = 0.3f,
          .aggregate = kind == Kind::edgeconv ? Reduce::max
                       : kind == Kind::sage   ? Reduce::mean
                                              : Reduce::sum};
}

// Parameters with gradients.
struct TrainedParams {
  std::vector<TestTensor> values{};
  std::vector<std::vector<float>> grads{};
  std::vector<Param> list{};
  explicit TrainedParams(const NetworkSpec& spec) {
    const std::vector<LayerParam> params = params_of(spec);
    for (size_t i = 0; i < params.size(); ++i) {
      values.emplace_back(DType::f32, params[i].shape, i + 1);
      grads.emplace_back(static_cast<size_t>(params[i].shape.count()));
    }
    for (size_t i = 0; i < params.size(); ++i) {
      const Shape& shape = params[i].shape;
      const int64_t rows = shape.rank != 2 ? 1 : params[i].transposed ? shape[1] : shape[0];
      Param& p = list.emplace_back();
      p.value = dense_weight(View(values[i].view().data, DType::f32, {rows, shape.count() / rows}));
      p.grad = mut_view_of(grads[i].data(), {rows, shape.count() / rows});
    }
  }
};

struct StepResult {
  std::vector<double> logits{}, grads{};
};

// The logits, and the gradients of all parameters of sum(dy * logits).
StepResult step(const NetworkSpec& spec, const graph::Graph& graph, bool whole, int threads = 1) {
  Block block = whole ? block_for(spec.kind, spec.rewrites, graph) : make_sampled_block(graph);
  if (!whole && needs_edge_blocks(spec.kind, spec.rewrites)) add_edge_blocks(block);
  TrainedParams params(spec);
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .threads = threads, .tape = &tape};
  nn::StateView none;
  Run run{.ctx = ctx, .seqs = block.senders, .state = none};
  const TestTensor x(DType::f32, {graph.cols(), spec.features}, 77);
  const Block* blocks[] = {&block};
  StepResult result;
  {
    const Tensor in(arena, DType::f32, x.shape);
    std::copy_n(x.view().as<float>(), x.view().count(), in.mut().as<float>());
    const Tensor y = Network(spec, params.list).forward(run, blocks, in);
    result.logits = to_doubles(y.view());
    const TestTensor dy(DType::f32, y.shape(), 78);
    const Tensor d(arena, DType::f32, dy.shape);
    std::copy_n(dy.view().as<float>(), dy.view().count(), d.mut().as<float>());
    tape.add_grad(ctx, y, d);
  }
  tape.backward(ctx);
  tape.clear();
  for (const auto& g : params.grads) result.grads.insert(result.grads.end(), g.begin(), g.end());
  return result;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double scale) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], scale * 5e-5) << i;
}

// All, none, and each one alone off.
std::vector<Rewrites> choices() {
  std::vector<Rewrites> list(2);
  for (const RewriteName& name : rewrite_names()) {
    list[1].*(name.on) = false;
    list.emplace_back().*(name.on) = false;
  }
  return list;
}

double largest(const std::vector<double>& values) {
  double most = 1;
  for (const double v : values) most = std::max(most, std::fabs(v));
  return most;
}

TEST(Rewrites, ChangeNoResultAndNoGradient) {
  graph::Csr csr = graph::rmat_graph(5, 3, 2);  // with nodes that receive nothing
  const graph::Graph graph = graph::make_graph(csr);
  for (const Kind kind : kKinds) {
    NetworkSpec spec = network(kind);
    const StepResult want = step(spec, graph, true);
    for (const Rewrites& rewrites : choices()) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << " postpone " << rewrites.postpone
                                      << " order " << rewrites.order << " fuse " << rewrites.fuse << " recompute "
                                      << rewrites.recompute << " first " << rewrites.first);
      spec.rewrites = rewrites;
      const StepResult got = step(spec, graph, true);
      expect_near(got.logits, want.logits, largest(want.logits));
      expect_near(got.grads, want.grads, largest(want.grads));
    }
  }
}

// Of one layer whose receivers are the first of its senders.
// Large enough that the ops of both passes divide their work; fused and edge by edge.
TEST(Rewrites, ThreadsChangeNoBitOfAGradient) {
  const graph::Graph graph = graph::make_graph(graph::uniform_graph(14000, 40000, 5));
  ASSERT_GT(sys::team_for(3, 2.0 * 16 * static_cast<double>(graph.rows())), 1);  // the gradient of max, the least
  for (const Kind kind : kKinds) {
    for (const Reduce reduce : {Reduce::max, Reduce::min, Reduce::mean}) {
      if (kind != Kind::edgeconv && kind != Kind::sage && reduce != Reduce::max) continue;
      if (kind == Kind::edgeconv && reduce == Reduce::mean) continue;
      for (const bool rewritten : {true, false}) {
        NetworkSpec spec = network(kind);
        spec.hidden = 16;
        if (kind == Kind::edgeconv || kind == Kind::sage) spec.aggregate = reduce;
        if (!rewritten) spec.rewrites = choices()[1];
        const StepResult one = step(spec, graph, true), three = step(spec, graph, true, 3);
        EXPECT_EQ(one.logits, three.logits) << static_cast<int>(kind);
        EXPECT_EQ(one.grads, three.grads) << static_cast<int>(kind) << " " << static_cast<int>(reduce) << rewritten;
      }
    }
  }
}

TEST(Rewrites, NorInASample) {
  const graph::Graph graph =
      graph::make_graph({.rows = 3, .cols = 6, .rowptr = {0, 3, 3, 6}, .col = {1, 2, 5, 0, 3, 4}});
  for (const Kind kind : {Kind::sage, Kind::gin, Kind::gat, Kind::edgeconv}) {
    NetworkSpec spec = network(kind);
    spec.layers = 1;
    const StepResult want = step(spec, graph, false);
    for (const Rewrites& rewrites : choices()) {
      spec.rewrites = rewrites;
      const StepResult got = step(spec, graph, false);
      expect_near(got.logits, want.logits, largest(want.logits));
      expect_near(got.grads, want.grads, largest(want.grads));
    }
  }
}

TEST(Rewrites, EachSavesWhereItApplies) {
  const graph::Graph graph = graph::make_graph(graph::uniform_graph(1000, 60000, 1));
  const auto count = [&](NetworkSpec spec, const char* off) {
    spec.features = 40;
    spec.hidden = 8;
    if (spec.kind == Kind::gat) spec.hidden = 16;
    const std::string name = off;
    if (!name.empty()) spec.rewrites = rewrites_without(std::span(&name, 1), "test");
    TrainedParams params(spec);
    return count_step(spec, graph, params.list, {});
  };
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const NetworkSpec spec = network(kind);
    const StepCount all = count(spec, ""), unfused = count(spec, "fuse"), postponed = count(spec, "postpone"),
                    order = count(spec, "order"), kept = count(spec, "recompute"), first = count(spec, "first");
    EXPECT_GT(unfused.bytes, all.bytes);
    EXPECT_GT(unfused.memory, all.memory);
    const bool edges = kind == Kind::gat || kind == Kind::edgeconv;
    EXPECT_EQ(postponed.flops > all.flops, edges);
    EXPECT_EQ(postponed.bytes > 2 * all.bytes, edges);
    const bool chooses = kind == Kind::sage || kind == Kind::gin;  // gcn's own order is the cheaper here
    EXPECT_EQ(order.flops > all.flops, chooses);
    EXPECT_EQ(kept.memory > all.memory, kind == Kind::monet);
    EXPECT_GT(first.flops, all.flops);
  }
}

// Wide outputs, narrow inputs: gcn aggregates first, as does the first layer up to twice as wide an input.
TEST(Rewrites, OrderIsThatOfTheLowerCost) {
  const Block block = make_block(graph::make_graph(graph::uniform_graph(100, 1000, 1)), EdgeValues::none);
  const auto first = [&](int64_t in, int64_t out, bool features, Kind kind = Kind::gcn) {
    return product_first({.kind = kind, .in = in, .out = out, .first = features}, block);
  };
  EXPECT_TRUE(first(64, 16, false));
  EXPECT_FALSE(first(16, 64, false));
  EXPECT_TRUE(first(24, 16, false));
  EXPECT_FALSE(first(24, 16, true));  // no gradient goes back through the aggregation
  EXPECT_TRUE(first(40, 16, true));
  EXPECT_FALSE(first(24, 16, false, Kind::gin));  // its product has 32 outputs
  EXPECT_FALSE(product_first({.kind = Kind::sage, .in = 64, .out = 4, .aggregate = Reduce::max}, block));
}

TEST(Rewrites, UnknownNamesAreRefused) {
  const std::vector<std::string> names = {"fuse", "fusion"};
  EXPECT_NE(support::error_of([&] {
              rewrites_without(names, "graph.rewrites_off");
            }).find("[graph.rewrites_off] is not a rewrite; got fusion; expected postpone"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::gnn
