// Taped ops whose results are values of edges: what layers compute where they are not fused or postponed
// (rewrites.h). With `again` a result is freed after the forward pass and computed again where the backward pass reads
// it. Graphs outlive the backward pass.
#pragma once
#include "gnn/ops.h"

namespace braid::gnn {

// Error where edges and self-loops are more than 32-bit numbers can say.
void check_edge_blocks(int64_t edges, int64_t nodes);

// The rows of the senders of all edges, or of their receivers: x [cols or rows, D] -> [edges, D] F32.
Tensor gather(Run& run, const graph::Graph& graph, const Tensor& x, Side side, bool again);

// u of the receiver + v of the sender: u [rows, D], v [cols, D], of one type -> [edges, D] F32.
Tensor edge_sums(Run& run, const graph::Graph& graph, const Tensor& u, const Tensor& v, bool again);

// Weights of attention from scores [edges, H] (kernels/edge_softmax), in their shape.
Tensor edge_softmax(Run& run, const graph::Graph& graph, const Tensor& scores, float slope, bool again);

}  // namespace braid::gnn
