// Ops of graph networks as layers call them: taped if the Ctx has a tape. Blocks, views and Params must outlive the
// backward pass.
#pragma once
#include "core/param.h"
#include "gnn/block.h"
#include "kernels/gat/gat.h"
#include "kernels/spmm/spmm.h"
#include "nn/ops.h"
#include "nn/run.h"

namespace braid::gnn {

using nn::Run;

// What node i gets from its neighbours j: reduce over edges of op(x_j, edge), and terms of its own (kernels/spmm).
struct Messages {
  EdgeOp op = EdgeOp::copy_x;
  Reduce reduce = Reduce::sum;
  View weights{};  // [edges, W] F32, constants; or
  Tensor edge{};   // the same, with a gradient
  View self{};     // [rows] F32 or empty, with sum: + self_i x_i
  float own = 0;   // with sum: + own x_i
  Tensor add{};    // [rows, D], with max and min: added to rows with edges
};
// x [cols, D] (empty for copy_e) -> [rows, D] in `out`.
Tensor aggregate(Run& run, const Block& block, const Tensor& x, const Messages& messages, DType out);

// Attention over the edges and a loop of every node (kernels/gat): x [cols, heads P] -> [rows, heads P] in `out`.
struct Attention {
  int64_t heads = 1;
  float slope = 0.2f;
  AttentionDropout drop{};
};
Tensor attention(Run& run, const Block& block, const Tensor& x, Param& a_src, Param& a_dst, const Attention& how,
                 DType out);

// What its nodes contribute to the scores of edges: left as receivers, right as senders, [nodes, heads] F32 each.
struct NodeScores {
  Tensor left, right;
};
NodeScores node_scores(Run& run, const Tensor& x, Param& a_src, Param& a_dst, int64_t heads);

// x + b, b a vector.
Tensor bias(Run& run, const Tensor& x, Param& b, DType out);

// Gaussian weights of edges with pseudo-coordinates u, [edges, K] (kernels/edge_gaussian). With
// `again` they are freed after the forward pass and computed again for the backward pass.
Tensor gaussians(Run& run, const View& u, Param& mu, Param& sigma, bool again);

// [x | -x], or [0 | x]: the two sides of an edge function of [x_i | x_j - x_i] that is linear.
enum class Side : uint8_t { receiver, sender };
Tensor edge_side(Run& run, const Tensor& x, Side side);

}  // namespace braid::gnn
