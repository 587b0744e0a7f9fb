// Taped ops whose results are values of edges: what layers compute where they are not fused or postponed
// (rewrites.h). With `again` a result is freed after the forward pass and computed again where the backward pass reads
// it. Graphs outlive the backward pass.
#pragma once
#include "gnn/ops.h"
#include "kernels/sddmm/sddmm.h"

namespace braid::gnn {

// Error where edges and self-loops are more than 32-bit numbers can say.
void check_edge_blocks(int64_t edges, int64_t nodes);

// A value per edge (i <- j) of `graph` from u_i and v_j: any PairOp but `square`, which is the gradient of one. u
// [rows, D], v [cols, D], of one type, the one that the op does not read empty -> [edges, D] F32, of dots [edges,
// parts]. The gradients are SpmmFwd over the graph and its transpose and, for div, SddmmFwd over every sender itself.
struct Pairing {
  PairOp op = PairOp::dot;
  int64_t parts = 1;  // of dot: sums over as many parts of the channels
  bool again = false;
};
Tensor pair_values(Run& run, const graph::Graph& graph, const Tensor& u, const Tensor& v, const Pairing& how);

// The rows of the senders of all edges, or of their receivers: x [cols or rows, D] -> [edges, D] F32.
inline Tensor gather(Run& run, const graph::Graph& graph, const Tensor& x, Side side, bool again) {
  if (side == Side::receiver) return pair_values(run, graph, x, {}, {.op = PairOp::copy_u, .again = again});
  return pair_values(run, graph, {}, x, {.op = PairOp::copy_v, .again = again});
}

// Weights of attention from scores [edges, H] (kernels/edge_softmax), in their shape.
Tensor edge_softmax(Run& run, const graph::Graph& graph, const Tensor& scores, float slope, bool again);

}  // namespace braid::gnn
