// Plans of full-graph training on a grid of ranks (gnn/grid.h; Plexus, arXiv 2505.04083, section 4): for every x, y, z
// what a rank sends, keeps and computes in a step, and its time in closed form. Calls are those of the trainer
// (train/grid_nodes.h), with the terms of that paper but for two: features are not trained, so that the first layer
// sends no gradients of its inputs, and a weight that was gathered stays until the backward pass. In time, collectives
// are those of links.cc or of a replay in virtual time; nothing overlaps, as in the trainer. Blocks have equally many
// edges: a random permutation of the nodes makes them so.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gnn/grid.h"
#include "layout/replay.h"

namespace braid::layout {

struct GraphTask {
  int64_t nodes = 0, edges = 0;  // edges: of the adjacency, both directions, without self-loops
  int64_t features = 0, classes = 0, hidden = 128, layers = 3;
  int64_t ranks = 1;
  bool bf16 = false;  // operands of products; sums are FP32

  gnn::NetworkSpec network() const;
};

enum class GraphAxis : uint8_t { x, y, z };
constexpr int kGraphAxes = 3;

// The vector of some of the groups of an axis: where nodes and channels do not divide evenly, those of others are a row
// or a column longer, which may be sent by another algorithm.
struct GraphVector {
  double bytes = 0, share = 1;  // of the groups
};
struct GraphCall {
  comm::Op op = comm::Op::all_reduce;
  GraphAxis axis = GraphAxis::x;
  std::vector<GraphVector> vectors{};  // at most four

  double bytes() const;  // of the whole vector, in the mean over groups
};
// The ranks of an axis: consecutive ranks are y, then x, then z.
comm::Groups group_of(const gnn::GridShape& shape, GraphAxis axis);
// In order.
std::vector<GraphCall> graph_calls(const GraphTask& task, const gnn::GridShape& shape);
// What a rank sends in a call within a node, in the mean over all: the algorithms that comm chooses, exactly.
double bytes_sent(const GraphCall& call, int64_t ranks);

// Of a rank; activations and working set are an estimate of what is alive at once.
struct GraphMemory {
  double edges = 0, features = 0, weights = 0, activations = 0, passes = 0;
  double sum() const { return edges + features + weights + activations + passes; }
};

struct GraphCost {
  gnn::GridShape shape{};
  double step = 0;                                         // seconds; the sum of the next four
  double aggregate = 0, products = 0, rest = 0, sent = 0;  // rest: passes over activations, and the optimiser
  std::array<double, kGraphAxes> bytes{}, seconds{};       // sent by a rank, by axis
  GraphMemory memory{};
  bool fits = false;
};

// All x, y, z that make the ranks and that the network allows, in the order of x, then y.
std::vector<gnn::GridShape> graph_shapes(const GraphTask& task);
GraphCost graph_cost(const GraphTask& task, const Machine& machine, const gnn::GridShape& shape);
// Of all shapes: those that fit first, fastest first. Error when the network allows none.
std::vector<GraphCost> graph_plans(const GraphTask& task, const Machine& machine);
// The same step with its calls played in virtual time, each with the mean of its vectors.
double graph_step_replayed(const GraphTask& task, const GraphCost& cost, Replay& replay);

// Published graphs, whose numbers are those of their sources.
struct PublishedGraph {
  const char* name;
  GraphTask task{};
  const char* source;
};
std::span<const PublishedGraph> published_graphs();

}  // namespace braid::layout
