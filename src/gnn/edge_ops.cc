#include "gnn/edge_ops.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/add/add.h"
#include "kernels/edge_softmax/edge_softmax.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::gnn {
namespace {

// The sum over the edges of each receiver, or of each sender, of dy times `other`, the rows of the other ends; of dy
// alone without. dy has a value per part of the channels.
void sum_edges(Ctx& c, const graph::Graph& graph, const View& dy, Side side, const View& other, const MutView& sum) {
  const bool receiver = side == Side::receiver;
  const graph::Csr& csr = receiver ? graph.in : graph.out;
  run(c, SpmmFwd{.rowptr = csr.rowptr_view(),
                 .col = csr.col_view(),
                 .order = receiver ? View() : graph.order_view(),
                 .x = other,
                 .edge = dy,
                 .y = sum,
                 .op = other ? EdgeOp::mul : EdgeOp::copy_e});
}

// Every sender as its own only neighbour, by which SddmmFwd is elementwise. One without edges has none here either: its
// row is 0, whatever a division by its value would be.
struct Diagonal {
  Tensor rowptr, col;
  Diagonal(Ctx& c, const graph::Csr& out) : rowptr(c.arena, DType::i64, {out.rows + 1}) {
    std::vector<int32_t> senders;
    std::vector<int64_t> ends = {0};
    for (int64_t j = 0; j < out.rows; ++j) {
      if (out.degree(j) > 0) senders.push_back(static_cast<int32_t>(j));
      ends.push_back(std::ssize(senders));
    }
    col = Tensor(c.arena, DType::i32, {std::ssize(senders)});
    if (c.dry) return;
    std::ranges::copy(ends, rowptr.mut().as<int64_t>());
    std::ranges::copy(senders, col.mut().as<int32_t>());
  }
};

// What the closures of a value per edge share.
struct PairPass {
  const graph::Graph* graph;
  Ref u, v, y;
  PairOp op;
  bool du, dv;

  bool factor() const { return op == PairOp::dot || op == PairOp::mul || op == PairOp::div; }
  // What the backward pass reads.
  bool saves_u() const { return factor() && dv; }
  bool saves_v() const { return factor() && (du || (dv && op == PairOp::div)); }
};

// y = u / v: du is the sum of dy / v, dv that of -dy u / v^2.
void quotient_gradients(Ctx& c, Tape& tape, const PairPass& p, const View& dy) {
  const Shape shape = p.v.shape();
  const Diagonal nodes(c, p.graph->out);
  const View rowptr = nodes.rowptr.view(), col = nodes.col.view();
  const Tensor v(c.arena, DType::f32, {nodes.col.dim(0), shape[1]}), temporary(c.arena, DType::f32, shape);
  run(c, SddmmFwd{.rowptr = rowptr, .col = col, .v = p.v.view(), .y = v.mut(), .op = PairOp::copy_v});
  if (p.du) {
    const Tensor ones(c.arena, DType::f32, shape), du = tape.make_grad(c, p.u);
    if (!c.dry) fill(ones.mut(), 1);
    run(c,
        SpmmFwd{
            .rowptr = rowptr, .col = col, .x = ones.view(), .edge = v.view(), .y = temporary.mut(), .op = EdgeOp::div});
    sum_edges(c, *p.graph, dy, Side::receiver, temporary.view(), du.mut());
    tape.add_grad(c, p.u, du);
  }
  if (!p.dv) return;
  const Tensor dv = tape.make_grad(c, p.v), own(c.arena, DType::f32, v.shape());
  sum_edges(c, *p.graph, dy, Side::sender, p.u.view(), temporary.mut());
  run(c, SddmmFwd{.rowptr = rowptr,
                  .col = col,
                  .u = temporary.view(),
                  .edge = v.view(),
                  .y = own.mut(),
                  .scale = -1,
                  .op = PairOp::square});
  run(c, SpmmFwd{.rowptr = rowptr, .col = col, .edge = own.view(), .y = dv.mut(), .op = EdgeOp::copy_e});
  tape.add_grad(c, p.v, dv);
}

void pair_gradients(Ctx& c, Tape& tape, const PairPass& p) {
  const Tensor grad = tape.grad(p.y);
  const View dy = grad.view();
  if (p.op == PairOp::div) return quotient_gradients(c, tape, p, dy);
  if (p.du) {
    const Tensor du = tape.make_grad(c, p.u);
    sum_edges(c, *p.graph, dy, Side::receiver, p.factor() ? p.v.view() : View(), du.mut());
    tape.add_grad(c, p.u, du);
  }
  if (!p.dv) return;
  const Tensor dv = tape.make_grad(c, p.v);
  if (p.op == PairOp::sub) {
    const Tensor sum(c.arena, DType::f32, p.v.shape());
    sum_edges(c, *p.graph, dy, Side::sender, {}, sum.mut());
    run(c, AddFwd{.b = sum.view(), .y = dv.mut(), .scale = -1});
  } else {
    sum_edges(c, *p.graph, dy, Side::sender, p.factor() ? p.u.view() : View(), dv.mut());
  }
  tape.add_grad(c, p.v, dv);
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

Tensor pair_values(Run& run, const graph::Graph& graph, const Tensor& u, const Tensor& v, const Pairing& how) {
  CHECK(how.op != PairOp::square, "the gradient of a quotient has none of its own");
  const auto needed = [&](const Tensor& t) { return t && run.ctx.tape && run.ctx.tape->needs_grad(t); };
  const int64_t values = how.op == PairOp::dot ? how.parts : (u ? u : v).dim(1);
  const Tensor y(run.ctx.arena, DType::f32, {graph.edges(), values});
  const PairPass p{
      .graph = &graph, .u = Ref(u), .v = Ref(v), .y = Ref(y), .op = how.op, .du = needed(u), .dv = needed(v)};
  taped(
      run.ctx, "pair_values",
      {.in = {u, v},
       .out = {y},
       .saved = {p.saves_u() ? u : Tensor(), p.saves_v() ? v : Tensor()},
       .cost = Cost::cheap,
       .again = how.again},
      [p](Ctx& c) {
        braid::run(c, SddmmFwd{.rowptr = p.graph->in.rowptr_view(),
                               .col = p.graph->in.col_view(),
                               .u = p.u.view(),
                               .v = p.v.view(),
                               .y = p.y.mut(),
                               .op = p.op});
      },
      [p](Ctx& c, Tape& tape) { pair_gradients(c, tape, p); });
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
