#include "layout/graph_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sys/error.h"

namespace braid::layout {
namespace {

using comm::Op;

double num(int64_t n) { return static_cast<double>(n); }

// The axes of a layer by role.
using Axes = gnn::GridRoles<GraphAxis>;
Axes axes_of(int64_t layer) { return gnn::rotated(GraphAxis::x, GraphAxis::y, GraphAxis::z, layer); }

// What a rank has in a layer, in elements.
struct LayerParts {
  double outer = 1, inner = 1, depth = 1;        // ranks
  double rows = 0, cols = 0;                     // of its block of the adjacency
  double edges = 0, h = 0, s = 0, w = 0, y = 0;  // entries of it, of H, S, W and Y
  double in = 0, out = 0;                        // channels
};

LayerParts parts_of(const GraphTask& task, const gnn::GridShape& shape, int64_t layer) {
  const gnn::LayerSpec spec = gnn::layers_of(task.network())[static_cast<size_t>(layer)];
  const gnn::GridRoles<int64_t> r = gnn::roles_of(shape, layer);
  LayerParts p{.outer = num(r.outer), .inner = num(r.inner), .depth = num(r.depth)};
  p.rows = num(task.nodes) / p.depth;
  p.cols = num(task.nodes) / p.outer;
  p.in = num(spec.in) / p.inner;
  p.out = num(spec.out) / p.outer;
  p.edges = num(task.edges) / (p.depth * p.outer);
  p.h = p.cols * p.in;
  p.s = p.rows * p.in;
  p.w = p.out * p.in;
  p.y = p.rows * p.out;
  return p;
}

// The counts of `n` that the ranks of an axis have (share_of).
std::vector<GraphVector> counts_of(int64_t n, int64_t ranks) {
  const int64_t more = n % ranks;
  std::vector<GraphVector> counts;
  if (more > 0) counts.push_back({num(n / ranks + 1), num(more) / num(ranks)});
  counts.push_back({num(n / ranks), num(ranks - more) / num(ranks)});
  return counts;
}

// Vectors of so many elements of `bytes` each, over the ranks of two axes.
std::vector<GraphVector> vectors_of(double bytes, const std::vector<GraphVector>& a,
                                    const std::vector<GraphVector>& b = {{1, 1}}) {
  std::vector<GraphVector> vectors;
  for (const GraphVector& i : a) {
    for (const GraphVector& j : b) vectors.push_back({bytes * i.bytes * j.bytes, i.share * j.share});
  }
  return vectors;
}

template <class Of>
double mean_over(const GraphCall& call, const Of& of) {
  double sum = 0;
  for (const GraphVector& v : call.vectors) sum += v.share * of(v.bytes);
  return sum;
}

}  // namespace

double GraphCall::bytes() const {
  return mean_over(*this, [](double bytes) { return bytes; });
}

gnn::NetworkSpec GraphTask::network() const {
  return {.kind = gnn::Kind::gcn, .layers = layers, .features = features, .hidden = hidden, .classes = classes};
}

comm::Groups group_of(const gnn::GridShape& shape, GraphAxis axis) {
  const auto [x, y, z] = shape;
  const auto size = [](int64_t n) { return static_cast<int>(n); };
  switch (axis) {
    case GraphAxis::x:
      return {.size = size(x), .stride = size(y)};
    case GraphAxis::y:
      return {.size = size(y), .stride = 1};
    default:
      return {.size = size(z), .stride = size(x * y)};
  }
}

std::vector<GraphCall> graph_calls(const GraphTask& task, const gnn::GridShape& shape) {
  constexpr double kSum = 4;  // bytes of an element
  const double operand = task.bf16 ? 2 : 4;
  std::vector<GraphCall> forward, backward;
  for (int64_t i = 0; i < task.layers; ++i) {
    const gnn::LayerSpec spec = gnn::layers_of(task.network())[static_cast<size_t>(i)];
    const gnn::GridRoles<int64_t> ranks = gnn::roles_of(shape, i);
    const Axes axes = axes_of(i);
    const auto rows = counts_of(task.nodes, ranks.depth), cols = counts_of(task.nodes, ranks.outer),
               in = counts_of(spec.in, ranks.inner), out = counts_of(spec.out, ranks.outer);
    if (i == 0) forward.push_back({Op::all_gather, axes.depth, vectors_of(operand, cols, in)});
    forward.push_back({Op::all_reduce, axes.outer, vectors_of(kSum, rows, in)});
    forward.push_back({Op::all_gather, axes.depth, vectors_of(operand, out, in)});
    forward.push_back({Op::all_reduce, axes.inner, vectors_of(kSum, rows, out)});
    // From the last layer to the first.
    std::vector<GraphCall> own = {{Op::all_reduce, axes.depth, vectors_of(kSum, out)},
                                  {Op::reduce_scatter, axes.depth, vectors_of(kSum, out, in)}};
    if (i > 0) {
      own.push_back({Op::all_reduce, axes.outer, vectors_of(kSum, rows, in)});
      own.push_back({Op::all_reduce, axes.depth, vectors_of(kSum, cols, in)});
    }
    backward.insert(backward.begin(), own.begin(), own.end());
    if (i + 1 < task.layers) continue;
    // The loss: largest logits; three sums a row; two sums of all rows in FP64.
    forward.push_back({Op::all_reduce, axes.outer, vectors_of(kSum, rows)});
    forward.push_back({Op::all_reduce, axes.outer, vectors_of(3 * kSum, rows)});
    forward.push_back({Op::all_gather, axes.depth, {{16 * num(ranks.depth), 1}}});
  }
  forward.insert(forward.end(), backward.begin(), backward.end());
  return forward;
}

namespace {

double bytes_sent(Op op, double n, int64_t ranks) {
  const double p = num(ranks);
  const auto core = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(ranks)));
  const double lent = num(ranks - core);  // ranks that lend their vector to another
  switch (op) {
    case Op::all_reduce:
      if (n > 32 << 10) return 2 * (p - 1) / p * n;
      return (2 * lent + num(core) * std::log2(num(core))) * n / p;
    case Op::reduce_scatter:
      if (n > 512 << 10) return (p - 1) / p * n;
      return (lent + num(core) - 1 + lent / p) * n / p;
    default:
      return (p - 1) / p * n;
  }
}

}  // namespace

double bytes_sent(const GraphCall& call, int64_t ranks) {
  return mean_over(call, [&](double bytes) { return bytes_sent(call.op, bytes, ranks); });
}

std::vector<gnn::GridShape> graph_shapes(const GraphTask& task) {
  std::vector<gnn::GridShape> shapes;
  for (int64_t x = 1; x <= task.ranks; ++x) {
    for (int64_t y = 1; task.ranks % x == 0 && y <= task.ranks / x; ++y) {
      const gnn::GridShape shape{.x = x, .y = y, .z = task.ranks / x / y};
      if (shape.ranks() == task.ranks && !gnn::why_not(task.network(), task.nodes, shape)) shapes.push_back(shape);
    }
  }
  return shapes;
}

namespace {

// A rank's entries of the adjacency and of its transpose, in three roles (gnn::GridBlock).
double edge_bytes(const GraphTask& task, const gnn::GridShape& shape) {
  double sum = 0;
  const int64_t roles = task.ranks == 1 ? 1 : std::min<int64_t>(3, task.layers);
  for (int64_t i = 0; i < roles; ++i) {
    const LayerParts p = parts_of(task, shape, i);
    sum += (4 + 4 + 4 + 4) * p.edges;          // columns, factors, transposed columns, their order
    sum += (8 + 4 + 4) * p.rows + 8 * p.cols;  // row pointers, degrees, self-loops
  }
  return sum;
}

GraphMemory memory_of(const GraphTask& task, const gnn::GridShape& shape) {
  const double operand = task.bf16 ? 2 : 4;
  GraphMemory m{.edges = edge_bytes(task, shape)};
  m.features = (4 + operand) * num(task.nodes) * num(task.features) / num(task.ranks);
  double parameters = 0;
  for (int64_t i = 0; i < task.layers; ++i) {
    const LayerParts p = parts_of(task, shape, i);
    const bool last = i + 1 == task.layers;
    parameters += p.w / p.depth + p.out;
    // What the product and the activation read again, and W; of the last layer logits and their gradient.
    m.activations += operand * (p.s + p.w) + (last ? 8 : 4) * p.y;
    m.passes = std::max(m.passes, 4 * (2 * p.s + 2 * p.y + p.h + p.w));
  }
  m.weights = (16 + (task.bf16 ? 2 : 0)) * parameters;
  return m;
}

}  // namespace

GraphCost graph_cost(const GraphTask& task, const Machine& machine, const gnn::GridShape& shape) {
  constexpr double kSector = 32;  // bytes that a GPU's memory moves for a shorter row
  const Device& device = machine.device;
  const double operand = task.bf16 ? 2 : 4, bandwidth = device.bytes_per_s(),
               flops = device.flops() / (task.bf16 ? 1 : 2);  // FP32 operands as TF32
  GraphCost cost{.shape = shape, .memory = memory_of(task, shape)};
  double parameters = 0;
  const auto product = [&](double rows, double cols, double depth) {
    const double bytes = operand * (rows * depth + cols * depth) + 4 * rows * cols;
    cost.products += std::max(2 * rows * cols * depth / flops, bytes / bandwidth);
  };
  for (int64_t i = 0; i < task.layers; ++i) {
    const LayerParts p = parts_of(task, shape, i);
    parameters += p.w / p.depth + p.out;
    cost.aggregate += (p.edges * (8 + std::max(kSector, operand * p.in)) + 4 * p.s) / bandwidth;
    product(p.rows, p.out, p.in);
    product(p.out, p.in, p.rows);
    double passes = 4 * (10 * p.y + 2 * p.s);  // bias, activation, gradients of both; what a sum copies
    if (i > 0) {
      cost.aggregate += (p.edges * (12 + std::max(kSector, 4 * p.in)) + 4 * p.h) / bandwidth;
      product(p.rows, p.in, p.out);
      passes += 4 * (2 * p.h + 2 * p.s);
    }
    cost.rest += passes / bandwidth;
  }
  cost.rest += 28 * parameters / bandwidth;  // AdamW reads four arrays and writes three
  for (const GraphCall& call : graph_calls(task, shape)) {
    const comm::Groups group = group_of(shape, call.axis);
    const auto axis = static_cast<size_t>(call.axis);
    cost.bytes[axis] += bytes_sent(call, group.size);
    cost.seconds[axis] += mean_over(
        call, [&](double bytes) { return seconds_of({.op = call.op, .bytes = bytes}, group, machine.links); });
  }
  for (const double seconds : cost.seconds) cost.sent += seconds;
  cost.step = cost.aggregate + cost.products + cost.rest + cost.sent;
  cost.fits = cost.memory.sum() <= device.memory_bytes();
  return cost;
}

std::vector<GraphCost> graph_plans(const GraphTask& task, const Machine& machine) {
  std::vector<GraphCost> plans;
  for (const gnn::GridShape& shape : graph_shapes(task)) plans.push_back(graph_cost(task, machine, shape));
  if (plans.empty())
    fail("--ranks", {.what = "make no grid: every axis needs as many nodes and channels",
                     .got = std::to_string(task.ranks),
                     .hint = "fewer --ranks"});
  std::stable_sort(plans.begin(), plans.end(),
                   [](const GraphCost& a, const GraphCost& b) { return a.fits != b.fits ? a.fits : a.step < b.step; });
  return plans;
}

double graph_step_replayed(const GraphTask& task, const GraphCost& cost, Replay& replay) {
  double sum = cost.aggregate + cost.products + cost.rest;
  for (const GraphCall& call : graph_calls(task, cost.shape))
    sum += replay.seconds({.op = call.op, .bytes = call.bytes()}, group_of(cost.shape, call.axis));
  return sum;
}

std::span<const PublishedGraph> published_graphs() {
  static const PublishedGraph kGraphs[] = {
      {"reddit",
       {.nodes = 232'965, .edges = 114'615'892, .features = 602, .classes = 41},
       "Hamilton et al., arXiv 1706.02216; edges as PyTorch Geometric counts them"},
      {"ogbn-products",
       {.nodes = 2'449'029, .edges = 123'718'280, .features = 100, .classes = 47},
       "Open Graph Benchmark, arXiv 2005.00687, table 2; edges both ways"},
      {"ogbn-papers100m",
       {.nodes = 111'059'956, .edges = 3'231'371'744, .features = 128, .classes = 172},
       "Open Graph Benchmark, arXiv 2005.00687, table 2; edges both ways"},
  };
  return kGraphs;
}

}  // namespace braid::layout
