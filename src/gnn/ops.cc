#include "gnn/ops.h"

#include "kernels/add/add.h"
#include "kernels/bias/bias.h"
#include "kernels/edge_gaussian/edge_gaussian.h"
#include "kernels/gat/gat.h"
#include "kernels/sddmm/sddmm.h"
#include "nn/param_source.h"

namespace braid::gnn {
namespace {

// A [rows, cols] Param as a matrix in F32, and its gradient.
View matrix_of(const Param& p) { return {p.value.codes.data, DType::f32, {p.value.rows, p.value.cols}}; }

bool needed(const Run& run, const Tensor& t) { return t && run.ctx.tape && run.ctx.tape->needs_grad(t); }

// What the closures of an aggregation share.
struct Aggregation {
  const graph::Graph* graph;
  sparse::Plans* plans;
  Ref x, edge, add, y, arg;
  View weights, self;
  float own;
  EdgeOp op;
  Reduce reduce;
  bool dx, dedge, dadd;

  View edge_view() const { return edge ? edge.view() : weights; }
  bool factor() const { return op == EdgeOp::mul || op == EdgeOp::div; }
  // What the backward pass reads.
  bool saves_x() const { return factor() && dedge; }
  bool saves_edge() const { return factor() || (dedge && picks(reduce)); }
};

// Of sums and means: the product over the transpose.
void data_gradient(Ctx& c, Tape& tape, const Aggregation& a) {
  const Tensor dx = tape.make_grad(c, a.x);
  const SpmmFwd product{.rowptr = a.graph->out.rowptr_view(),
                        .col = a.graph->out.col_view(),
                        .order = a.graph->order_view(),
                        .x = tape.grad(a.y).view(),
                        .x_scale = a.reduce == Reduce::mean ? a.graph->inverse_degree_view() : View(),
                        .edge = a.factor() ? a.edge_view() : View(),
                        .self = a.self,
                        .y = dx.mut(),
                        .own = a.own,
                        .op = a.factor() ? a.op : EdgeOp::copy_x};
  a.plans->out.run(c, product, !a.edge);
  tape.add_grad(c, a.x, dx);
}

void edge_gradient(Ctx& c, Tape& tape, const Aggregation& a) {
  const Tensor dedge = tape.make_grad(c, a.edge), dy = tape.grad(a.y);
  Tensor x;  // in the type of dy
  if (a.factor() && a.x.view().dtype != DType::f32) {
    x = Tensor(c.arena, DType::f32, a.x.shape());
    run(c, AddFwd{.b = a.x.view(), .y = x.mut()});
  }
  run(c, SddmmFwd{.rowptr = a.graph->in.rowptr_view(),
                  .col = a.graph->in.col_view(),
                  .u = dy.view(),
                  .u_scale = a.reduce == Reduce::mean ? a.graph->inverse_degree_view() : View(),
                  .v = x            ? x.view()
                       : a.factor() ? a.x.view()
                                    : View(),
                  .edge = a.op == EdgeOp::div ? a.edge.view() : View(),
                  .y = dedge.mut(),
                  .scale = a.op == EdgeOp::sub || a.op == EdgeOp::div ? -1.0f : 1.0f,
                  .op = a.op == EdgeOp::div ? PairOp::square : PairOp::dot});
  tape.add_grad(c, a.edge, dedge);
}

// Of max and min: everything goes to the edges that won.
void winner_gradients(Ctx& c, Tape& tape, const Aggregation& a) {
  const Tensor dx = a.dx ? tape.make_grad(c, a.x) : Tensor(), dedge = a.dedge ? tape.make_grad(c, a.edge) : Tensor(),
               dadd = a.dadd ? tape.make_grad(c, a.add) : Tensor();
  run(c, SpmmBwdArg{.rowptr = a.graph->in.rowptr_view(),
                    .col = a.graph->in.col_view(),
                    .x = a.saves_x() ? a.x.view() : View(),
                    .edge = a.saves_edge() ? a.edge_view() : View(),
                    .arg = a.arg.view(),
                    .dy = tape.grad(a.y).view(),
                    .dx = dx.mut(),
                    .dedge = dedge.mut(),
                    .dadd = dadd.mut(),
                    .op = a.op});
  if (dx) tape.add_grad(c, a.x, dx);
  if (dedge) tape.add_grad(c, a.edge, dedge);
  if (dadd) tape.add_grad(c, a.add, dadd);
}

}  // namespace

Tensor aggregate(Run& run, const Block& block, const Tensor& x, const Messages& m, DType out) {
  const int64_t width = x ? x.dim(1) : m.edge.dim(1);
  const Shape shape{block.rows(), width};
  const Tensor y(run.ctx.arena, out, shape);
  const bool winners = picks(m.reduce) && run.ctx.tape;
  const Tensor arg = winners ? Tensor(run.ctx.arena, DType::i32, shape) : Tensor();
  const Aggregation a{.graph = &block.graph,
                      .plans = block.plans.get(),
                      .x = Ref(x),
                      .edge = Ref(m.edge),
                      .add = Ref(m.add),
                      .y = Ref(y),
                      .arg = Ref(arg),
                      .weights = m.weights,
                      .self = m.self,
                      .own = m.own,
                      .op = m.op,
                      .reduce = m.reduce,
                      .dx = needed(run, x),
                      .dedge = needed(run, m.edge),
                      .dadd = needed(run, m.add)};
  const Tensor saved_x = a.saves_x() ? x : Tensor(), saved_edge = a.saves_edge() ? m.edge : Tensor();
  taped(
      run.ctx, "aggregate",
      {.in = {x, m.edge, m.add}, .out = {y, arg}, .saved = {saved_x, saved_edge, arg}, .cost = Cost::cheap},
      [a](Ctx& c) {
        const SpmmFwd product{.rowptr = a.graph->in.rowptr_view(),
                              .col = a.graph->in.col_view(),
                              .x = a.x.view(),
                              .edge = a.edge_view(),
                              .self = a.self,
                              .add = a.add.view(),
                              .y = a.y.mut(),
                              .arg = a.arg.mut(),
                              .own = a.own,
                              .op = a.op,
                              .reduce = a.reduce};
        a.plans->in.run(c, product, !a.edge);
      },
      [a](Ctx& c, Tape& tape) {
        if (picks(a.reduce)) return winner_gradients(c, tape, a);
        if (a.dx) data_gradient(c, tape, a);
        if (a.dedge) edge_gradient(c, tape, a);
      });
  return y;
}

namespace {

// Of a value that may have no reader, as one side of the scores of gathered rows.
Tensor grad_or_zeros(Ctx& c, const Tape& tape, const Ref& value) {
  Tensor grad = tape.grad(value);
  if (grad) return grad;
  grad = Tensor(c.arena, DType::f32, value.shape());
  fill(grad.mut(), 0);
  return grad;
}

}  // namespace

NodeScores node_scores(Run& run, const Tensor& x, Param& a_src, Param& a_dst, int64_t heads) {
  const NodeScores s{.left = Tensor(run.ctx.arena, DType::f32, {x.dim(0), heads}),
                     .right = Tensor(run.ctx.arena, DType::f32, {x.dim(0), heads})};
  taped(
      run.ctx, "scores",
      {.in = {x}, .out = {s.left, s.right}, .saved = {x}, .cost = Cost::cheap, .trains = static_cast<bool>(a_src.grad)},
      [x = Ref(x), left = Ref(s.left), right = Ref(s.right), &a_src, &a_dst](Ctx& c) {
        braid::run(c, GatScoresFwd{.x = x.view(),
                                   .a_src = nn::vector_of(a_src),
                                   .a_dst = nn::vector_of(a_dst),
                                   .right = right.mut(),
                                   .left = left.mut()});
      },
      [x = Ref(x), left = Ref(s.left), right = Ref(s.right), &a_src, &a_dst](Ctx& c, Tape& tape) {
        Tensor spare_src, spare_dst;
        const Tensor dx = tape.make_grad(c, x);
        const Tensor dright = grad_or_zeros(c, tape, right), dleft = grad_or_zeros(c, tape, left);
        braid::run(c, GatScoresBwd{.dright = dright.view(),
                                   .dleft = dleft.view(),
                                   .x = x.view(),
                                   .a_src = nn::vector_of(a_src),
                                   .a_dst = nn::vector_of(a_dst),
                                   .dx = dx.mut(),
                                   .da_src = nn::vector_grad(c, a_src, spare_src),
                                   .da_dst = nn::vector_grad(c, a_dst, spare_dst)});
        tape.add_grad(c, x, dx);
      });
  return s;
}

Tensor attention(Run& run, const Block& block, const Tensor& x, Param& a_src, Param& a_dst, const Attention& how,
                 DType out) {
  const NodeScores s = node_scores(run, x, a_src, a_dst, how.heads);
  const int64_t rows = block.rows(), heads = how.heads;
  const Tensor left = s.left.slice(0, 0, rows), right = s.right, y(run.ctx.arena, out, {rows, x.dim(1)}),
               top(run.ctx.arena, DType::f32, {rows, heads}), sum(run.ctx.arena, DType::f32, {rows, heads});
  taped(
      run.ctx, "attention", {.in = {x, left, right}, .out = {y, top, sum}, .saved = {x, left, right, y, top, sum}},
      [x = Ref(x), left = Ref(left), right = Ref(right), y = Ref(y), top = Ref(top), sum = Ref(sum),
       graph = &block.graph, how](Ctx& c) {
        braid::run(c, GatFwd{.rowptr = graph->in.rowptr_view(),
                             .col = graph->in.col_view(),
                             .x = x.view(),
                             .left = left.view(),
                             .right = right.view(),
                             .y = y.mut(),
                             .top = top.mut(),
                             .sum = sum.mut(),
                             .slope = how.slope,
                             .drop = how.drop});
      },
      [x = Ref(x), left = Ref(left), right = Ref(right), y = Ref(y), top = Ref(top), sum = Ref(sum),
       graph = &block.graph, how](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x), dleft = tape.make_grad(c, left), dright = tape.make_grad(c, right);
        braid::run(c, GatBwd{.rowptr = graph->in.rowptr_view(),
                             .col = graph->in.col_view(),
                             .out_rowptr = graph->out.rowptr_view(),
                             .out_col = graph->out.col_view(),
                             .order = graph->order_view(),
                             .x = x.view(),
                             .left = left.view(),
                             .right = right.view(),
                             .top = top.view(),
                             .sum = sum.view(),
                             .y = y.view(),
                             .dy = tape.grad(y).view(),
                             .dx = dx.mut(),
                             .dleft = dleft.mut(),
                             .dright = dright.mut(),
                             .slope = how.slope,
                             .drop = how.drop});
        tape.add_grad(c, x, dx);
        tape.add_grad(c, left, dleft);
        tape.add_grad(c, right, dright);
      });
  return y;
}

Tensor bias(Run& run, const Tensor& x, Param& b, DType out) {
  const Tensor y(run.ctx.arena, out, x.shape());
  taped(
      run.ctx, "bias", {.in = {x}, .out = {y}, .cost = Cost::cheap, .trains = static_cast<bool>(b.grad)},
      [x = Ref(x), y = Ref(y), &b](Ctx& c) {
        braid::run(c, BiasFwd{.x = x.view(), .b = nn::vector_of(b), .y = y.mut()});
      },
      [x = Ref(x), y = Ref(y), &b](Ctx& c, Tape& tape) {
        Tensor spare;
        const Tensor dy = tape.grad(y);
        braid::run(c, BiasBwd{.dy = dy.view(), .db = nn::vector_grad(c, b, spare)});
        tape.add_grad(c, x, dy);
      });
  return y;
}

Tensor gaussians(Run& run, const View& u, Param& mu, Param& sigma, bool again) {
  const Tensor w(run.ctx.arena, DType::f32, {u.dim(0), mu.value.rows});
  taped(
      run.ctx, "gaussians",
      {.in = {}, .out = {w}, .saved = {w}, .cost = Cost::cheap, .trains = static_cast<bool>(mu.grad), .again = again},
      [w = Ref(w), u, &mu, &sigma](Ctx& c) {
        braid::run(c, EdgeGaussianFwd{.u = u, .mu = matrix_of(mu), .sigma = matrix_of(sigma), .w = w.mut()});
      },
      [w = Ref(w), u, &mu, &sigma](Ctx& c, Tape& tape) {
        braid::run(c, EdgeGaussianBwd{.dw = tape.grad(w).view(),
                                      .w = w.view(),
                                      .u = u,
                                      .mu = matrix_of(mu),
                                      .sigma = matrix_of(sigma),
                                      .dmu = mu.grad,
                                      .dsigma = sigma.grad});
      });
  return w;
}

Tensor edge_side(Run& run, const Tensor& x, Side side) {
  const int64_t width = x.dim(1);
  const Tensor y(run.ctx.arena, x.dtype(), {x.dim(0), 2 * width});
  taped(
      run.ctx, "edge_side", {.in = {x}, .out = {y}, .cost = Cost::cheap},
      [x = Ref(x), y = Ref(y), side, width](Ctx& c) {
        const MutView first = y.mut().slice(1, 0, width), second = y.mut().slice(1, width, width);
        const bool receiver = side == Side::receiver;
        braid::run(c, AddFwd{.b = x.view(), .y = first, .scale = receiver ? 1.0f : 0.0f});
        braid::run(c, AddFwd{.b = x.view(), .y = second, .scale = receiver ? -1.0f : 1.0f});
      },
      [x = Ref(x), y = Ref(y), side, width](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x), dy = tape.grad(y);
        const View first = dy.view().slice(1, 0, width), second = dy.view().slice(1, width, width);
        if (side == Side::receiver) {
          braid::run(c, AddFwd{.a = first, .b = second, .y = dx.mut(), .scale = -1});
        } else {
          braid::run(c, AddFwd{.b = second, .y = dx.mut()});
        }
        tape.add_grad(c, x, dx);
      });
  return y;
}

}  // namespace braid::gnn
