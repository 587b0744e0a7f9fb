#include "gnn/edge_ops.h"

#include <limits>
#include <string>

#include "kernels/edge_softmax/edge_softmax.h"
#include "kernels/sddmm/sddmm.h"
#include "sys/error.h"

namespace braid::gnn {
namespace {

// The gradient of what receivers, or senders, give to their edges: the sum over these.
void sum_edges(Ctx& c, Tape& tape, const graph::Graph& graph, const Ref& value, const View& dy, Side side) {
  const Tensor dx = tape.make_grad(c, value);
  const bool receiver = side == Side::receiver;
  const graph::Csr& csr = receiver ? graph.in : graph.out;
  run(c, SpmmFwd{.rowptr = csr.rowptr_view(),
                 .col = csr.col_view(),
                 .order = receiver ? View() : graph.order_view(),
                 .edge = dy,
                 .y = dx.mut(),
                 .op = EdgeOp::copy_e});
  tape.add_grad(c, value, dx);
}

}  // namespace

void check_edge_blocks(int64_t edges, int64_t nodes) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (edges + nodes > kMost)
    fail("graph.rewrites", {.what = "the graph has too many edges to number them with self-loops",
                            .got = std::to_string(edges + nodes),
                            .expected = fmt::format("at most {}", kMost),
                            .hint = "rewrites that fuse a layer"});
}

Tensor gather(Run& run, const graph::Graph& graph, const Tensor& x, Side side, bool again) {
  const Tensor y(run.ctx.arena, DType::f32, {graph.edges(), x.dim(1)});
  taped(
      run.ctx, "gather", {.in = {x}, .out = {y}, .cost = Cost::cheap, .again = again},
      [x = Ref(x), y = Ref(y), &graph, side](Ctx& c) {
        const bool receiver = side == Side::receiver;
        braid::run(c, SddmmFwd{.rowptr = graph.in.rowptr_view(),
                               .col = graph.in.col_view(),
                               .u = receiver ? x.view() : View(),
                               .v = receiver ? View() : x.view(),
                               .y = y.mut(),
                               .op = receiver ? PairOp::copy_u : PairOp::copy_v});
      },
      [x = Ref(x), y = Ref(y), &graph, side](Ctx& c, Tape& tape) {
        sum_edges(c, tape, graph, x, tape.grad(y).view(), side);
      });
  return y;
}

Tensor edge_sums(Run& run, const graph::Graph& graph, const Tensor& u, const Tensor& v, bool again) {
  const Tensor y(run.ctx.arena, DType::f32, {graph.edges(), u.dim(1)});
  taped(
      run.ctx, "edge_sums", {.in = {u, v}, .out = {y}, .cost = Cost::cheap, .again = again},
      [u = Ref(u), v = Ref(v), y = Ref(y), &graph](Ctx& c) {
        braid::run(c, SddmmFwd{.rowptr = graph.in.rowptr_view(),
                               .col = graph.in.col_view(),
                               .u = u.view(),
                               .v = v.view(),
                               .y = y.mut(),
                               .op = PairOp::add});
      },
      [u = Ref(u), v = Ref(v), y = Ref(y), &graph](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y);
        sum_edges(c, tape, graph, u, dy.view(), Side::receiver);
        sum_edges(c, tape, graph, v, dy.view(), Side::sender);
      });
  return y;
}

Tensor edge_softmax(Run& run, const graph::Graph& graph, const Tensor& scores, float slope, bool again) {
  const Tensor y(run.ctx.arena, DType::f32, scores.shape());
  taped(
      run.ctx, "edge_softmax", {.in = {scores}, .out = {y}, .saved = {scores, y}, .cost = Cost::cheap, .again = again},
      [x = Ref(scores), y = Ref(y), &graph, slope](Ctx& c) {
        braid::run(c, EdgeSoftmaxFwd{.rowptr = graph.in.rowptr_view(), .x = x.view(), .y = y.mut(), .slope = slope});
      },
      [x = Ref(scores), y = Ref(y), &graph, slope](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x);
        braid::run(c, EdgeSoftmaxBwd{.rowptr = graph.in.rowptr_view(),
                                     .x = x.view(),
                                     .y = y.view(),
                                     .dy = tape.grad(y).view(),
                                     .dx = dx.mut(),
                                     .slope = slope});
        tape.add_grad(c, x, dx);
      });
  return y;
}

}  // namespace braid::gnn
