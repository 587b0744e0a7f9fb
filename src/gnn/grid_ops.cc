#include "gnn/grid_ops.h"

#include "kernels/bias/bias.h"
#include "kernels/linear/linear.h"
#include "nn/param_source.h"
#include "nn/rank_views.h"

namespace braid::gnn {
namespace {

// What messages of a block are multiplied by.
View norm_of(const GridBlock& block) {
  static constexpr float kNone = 0;
  return view_of(block.norm.empty() ? &kNone : block.norm.data(), {block.graph.edges(), 1});
}

View self_of(const GridBlock& block) {
  return block.self_norm.empty() ? View() : view_of(block.self_norm.data(), {std::ssize(block.self_norm)});
}

// Elements of every rank's rows.
std::vector<int64_t> counts_of(const comm::Group& ranks, int64_t rows, int64_t width) {
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < ranks.size(); ++rank)
    counts.push_back(width * share_of(rows, rank, ranks.size()).count);
  return counts;
}

}  // namespace

Tensor aggregate(Run& run, const GridBlock& block, const Tensor& x) {
  const Tensor y(run.ctx.arena, DType::f32, {block.graph.rows(), x.dim(1)});
  taped(
      run.ctx, "aggregate", {.in = {x}, .out = {y}, .cost = Cost::cheap},
      [x = Ref(x), y = Ref(y), &block](Ctx& c) {
        const SpmmFwd product{.rowptr = block.graph.in.rowptr_view(),
                              .col = block.graph.in.col_view(),
                              .x = x.view(),
                              .edge = norm_of(block),
                              .self = self_of(block),
                              .y = y.mut(),
                              .self_row = block.self_row,
                              .self_source = block.self_source,
                              .op = EdgeOp::mul};
        block.plans ? block.plans->in.run(c, product, true) : braid::run(c, product);
      },
      [x = Ref(x), y = Ref(y), &block](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x);
        const SpmmFwd product{.rowptr = block.graph.out.rowptr_view(),
                              .col = block.graph.out.col_view(),
                              .order = block.graph.order_view(),
                              .x = tape.grad(y).view(),
                              .edge = norm_of(block),
                              .self = self_of(block),
                              .y = dx.mut(),
                              .self_row = block.self_source,
                              .self_source = block.self_row,
                              .op = EdgeOp::mul};
        block.plans ? block.plans->out.run(c, product, true) : braid::run(c, product);
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor gather_rows(Run& run, comm::Group& ranks, const Tensor& x, int64_t rows) {
  if (ranks.size() == 1) return x;
  const Tensor all(run.ctx.arena, x.dtype(), {rows, x.dim(1)});
  ranks.all_gather(nn::flat(x.view()), nn::flat(all.mut()), counts_of(ranks, rows, x.dim(1))).wait();
  return all;
}

Tensor gather_weight(Run& run, comm::Group& ranks, Param& part, int64_t rows) {
  const Tensor w(run.ctx.arena, part.value.codes.dtype, {rows, part.value.cols});
  const std::vector<int64_t> counts = counts_of(ranks, rows, part.value.cols);
  // A stream: no plan repeats what ranks do together.
  taped(
      run.ctx, "gather_weight", {.in = {}, .out = {w}, .cost = Cost::stream, .trains = static_cast<bool>(part.grad)},
      [w = Ref(w), &part, &ranks, counts](Ctx&) {
        ranks.all_gather(nn::flat(part.value.codes), nn::flat(w.mut()), counts).wait();
      },
      [w = Ref(w), &part, &ranks, counts](Ctx&, Tape& tape) {
        const Tensor dw = tape.grad(w);
        ranks.reduce_scatter(nn::flat(dw.view()), nn::flat(part.grad), comm::Reduction::sum, counts).wait();
      });
  return w;
}

Tensor product(Run& run, const Tensor& x, const Tensor& w) {
  const Tensor y(run.ctx.arena, DType::f32, {x.dim(0), w.dim(0)});
  const bool dx_needed = run.ctx.tape && run.ctx.tape->needs_grad(x),
             packed = run.numerics.product_class == ProductClass::packed;
  taped(
      run.ctx, "product", {.in = {x, w}, .out = {y}, .saved = {x, w}},
      [x = Ref(x), w = Ref(w), y = Ref(y), packed](Ctx& c) {
        braid::run(c, LinearFwd{.x = x.view(), .w = dense_weight(w.view()), .y = y.mut(), .train = packed});
      },
      [x = Ref(x), w = Ref(w), y = Ref(y), dx_needed](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y), dw = tape.make_grad(c, w);
        fill(dw.mut(), 0);
        braid::run(c, LinearBwdWeight{.dy = dy.view(), .x = x.view(), .dw = dw.mut()});
        tape.add_grad(c, w, dw);
        if (!dx_needed) return;
        const Tensor dx = tape.make_grad(c, x);
        braid::run(
            c, LinearBwdData{
                   .dy = dy.view(), .w = dense_weight(w.view()), .dx = dx.mut(), .wide = x.view().dtype == DType::f32});
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor shared_bias(Run& run, comm::Group& ranks, const Tensor& x, Param& b) {
  const Tensor y(run.ctx.arena, DType::f32, x.shape());
  taped(
      run.ctx, "bias", {.in = {x}, .out = {y}, .cost = Cost::cheap, .trains = static_cast<bool>(b.grad)},
      [x = Ref(x), y = Ref(y), &b](Ctx& c) {
        braid::run(c, BiasFwd{.x = x.view(), .b = nn::vector_of(b), .y = y.mut()});
      },
      [x = Ref(x), y = Ref(y), &b, &ranks](Ctx& c, Tape& tape) {
        Tensor spare;
        const Tensor dy = tape.grad(y);
        const MutView db = nn::vector_grad(c, b, spare);
        braid::run(c, BiasBwd{.dy = dy.view(), .db = db});
        ranks.all_reduce(db, db).wait();
        tape.add_grad(c, x, dy);
      });
  return y;
}

}  // namespace braid::gnn
