#include "gnn/layer.h"

#include <cmath>
#include <utility>

#include "gnn/edge_ops.h"

namespace braid::gnn {
namespace {

// torch.nn.Linear: weight and bias uniform in 1 / sqrt(inputs).
LayerParam linear_weight(std::string name, int64_t out, int64_t in) {
  return {.name = std::move(name), .shape = {out, in}, .matrix = true, .bound = 1 / std::sqrt(static_cast<double>(in))};
}
LayerParam linear_bias(std::string name, int64_t out, int64_t in) {
  return {.name = std::move(name), .shape = {out}, .bound = 1 / std::sqrt(static_cast<double>(in))};
}

double glorot(int64_t in, int64_t out) { return std::sqrt(6 / static_cast<double>(in + out)); }

// By output channels, as even as can be.
LayerParam divided(LayerParam p) {
  p.shard = {.axis = Shard::Axis::rows, .units = p.shape[0], .uneven = true};
  return p;
}

}  // namespace

std::vector<LayerParam> params_of(const LayerSpec& s) {
  const LayerParam zero_bias{.name = "bias", .shape = {s.out}};
  switch (s.kind) {
    case Kind::gcn:
      return {divided({.name = "lin.weight", .shape = {s.out, s.in}, .matrix = true, .bound = glorot(s.in, s.out)}),
              divided(zero_bias)};
    case Kind::sage:
      return {divided(linear_weight("lin_l.weight", s.out, s.in)), divided(linear_bias("lin_l.bias", s.out, s.in)),
              divided(linear_weight("lin_r.weight", s.out, s.in_dst > 0 ? s.in_dst : s.in))};
    case Kind::gin:
      return {linear_weight("nn.0.weight", 2 * s.out, s.in), linear_bias("nn.0.bias", 2 * s.out, s.in),
              linear_weight("nn.2.weight", s.out, 2 * s.out), linear_bias("nn.2.bias", s.out, 2 * s.out)};
    case Kind::gat: {
      const int64_t part = s.out / s.heads;
      const Shape heads{1, s.heads, part};
      return {{.name = "lin.weight", .shape = {s.out, s.in}, .matrix = true, .bound = glorot(s.in, s.out)},
              {.name = "att_src", .shape = heads, .bound = glorot(s.heads, part)},
              {.name = "att_dst", .shape = heads, .bound = glorot(s.heads, part)},
              zero_bias};
    }
    case Kind::edgeconv:
      return {linear_weight("nn.weight", s.out, 2 * s.in), linear_bias("nn.bias", s.out, 2 * s.in)};
    case Kind::monet:
      return {{.name = "g",
               .shape = {s.in, s.out * s.kernels},
               .matrix = true,
               .transposed = true,
               .bound = glorot(s.in, s.out * s.kernels)},
              {.name = "mu", .shape = {s.kernels, 2}, .bound = glorot(s.kernels, 2)},
              {.name = "sigma", .shape = {s.kernels, 2}, .bound = glorot(s.kernels, 2)},
              {.name = "root.weight", .shape = {s.out, s.in}, .matrix = true, .bound = glorot(s.in, s.out)},
              zero_bias};
  }
  return {};
}

namespace {

// The rows of the nodes that receive.
Tensor receivers(const Block& block, const Tensor& x) {
  return block.rows() == x.dim(0) ? x : x.slice(0, 0, block.rows());
}

// The product of a tensor whose rows are those of `rows`.
Tensor linear(Run& run, const SeqMap& rows, const Tensor& x, Param& w, DType out, Param* b = nullptr) {
  Run own{.ctx = run.ctx, .seqs = rows, .state = run.state, .numerics = run.numerics};
  return nn::linear(own, x, w, out, b);
}

// Messages written to memory edge by edge, then reduced: aggregate() without fusion. Weights of edges are those of
// `messages`.
Tensor reduce_edges(Run& run, const EdgeBlock& edges, const Tensor& x, const Messages& messages,
                    const Rewrites& rewrites, DType out) {
  const Tensor values = gather(run, edges.graph, x, Side::sender, rewrites.recompute);
  return aggregate(run, edges.messages, values, messages, out);
}

class Gcn final : public Layer {
 public:
  Gcn(std::span<Param> p, const LayerSpec& spec) : weight_(p[0]), bias_(p[1]), spec_(spec) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    if (product_first(spec_, block)) {
      const Tensor h = linear(run, block.senders, x, weight_, run.numerics.activations);
      return bias(run, propagate(run, block, h, out), bias_, out);
    }
    return linear(run, block.receivers, propagate(run, block, x, run.numerics.products), weight_, out, &bias_);
  }

 private:
  Tensor propagate(Run& run, const Block& block, const Tensor& x, DType out) const {
    if (spec_.rewrites.fuse)
      return aggregate(run, block, x, {.op = EdgeOp::mul, .weights = block.norm_view(), .self = block.self_norm_view()},
                       out);
    return reduce_edges(run, *block.looped, x, {.op = EdgeOp::mul, .weights = block.looped->norm_view()},
                        spec_.rewrites, out);
  }

  Param &weight_, &bias_;
  LayerSpec spec_;
};

class Sage final : public Layer {
 public:
  Sage(std::span<Param> p, const LayerSpec& spec) : params_(p), spec_(spec) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    return sage_forward(run, block, x, receivers(block, x), spec_, params_, out);
  }

 private:
  std::span<Param> params_;
  LayerSpec spec_;
};

class Gin final : public Layer {
 public:
  Gin(std::span<Param> p, const LayerSpec& spec)
      : up_(p[0]), up_bias_(p[1]), down_(p[2]), down_bias_(p[3]), spec_(spec) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const DType between = run.numerics.activations;
    Tensor h;
    if (product_first(spec_, block)) {
      h = propagate(run, block, linear(run, block.senders, x, up_, between), between);
      h = bias(run, h, up_bias_, between);
    } else {
      h = linear(run, block.receivers, propagate(run, block, x, run.numerics.products), up_, between, &up_bias_);
    }
    return linear(run, block.receivers, nn::act(run, h, {}, Act::relu), down_, out, &down_bias_);
  }

 private:
  Tensor propagate(Run& run, const Block& block, const Tensor& x, DType out) const {
    const float own = 1 + spec_.eps;
    if (spec_.rewrites.fuse) return aggregate(run, block, x, {.own = own}, out);
    const Tensor sum = reduce_edges(run, *block.plain, x, {}, spec_.rewrites, DType::f32);
    return nn::add(run, sum, nn::scaled(run, receivers(block, x), own, DType::f32), out);
  }

  Param &up_, &up_bias_, &down_, &down_bias_;
  LayerSpec spec_;
};

class Gat final : public Layer {
 public:
  Gat(std::span<Param> p, const LayerSpec& spec) : weight_(p[0]), src_(p[1]), dst_(p[2]), bias_(p[3]), spec_(spec) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Tensor h = linear(run, block.senders, x, weight_, run.numerics.activations);
    const Rewrites& r = spec_.rewrites;
    const Tensor y =
        r.fuse && r.postpone ? attention(run, block, h, src_, dst_, how(run), out) : attend_edges(run, block, h, out);
    return bias(run, y, bias_, out);
  }

 private:
  static constexpr float kSlope = 0.2f;  // PyG's negative_slope

  Attention how(const Run& run) const {
    Attention attention{.heads = spec_.heads, .slope = kSlope};
    if (!run.draws) return attention;
    constexpr uint32_t kStream = 0x61747464;  // "attd": no other op draws with it
    attention.drop = {.rate = spec_.attention_dropout,
                      .key = {.seed = run.draws->seed, .stream = kStream + static_cast<uint32_t>(spec_.number)},
                      .step = static_cast<uint32_t>(run.draws->step)};
    return attention;
  }

  // With scores, weights and messages of edges in memory.
  Tensor attend_edges(Run& run, const Block& block, const Tensor& h, DType out) const {
    const EdgeBlock& edges = *block.looped;
    const bool again = spec_.rewrites.recompute;
    const Tensor messages = gather(run, edges.graph, h, Side::sender, again);
    Tensor scores;
    if (spec_.rewrites.postpone) {
      const NodeScores s = node_scores(run, h, src_, dst_, spec_.heads);
      scores =
          pair_values(run, edges.graph, s.left.slice(0, 0, block.rows()), s.right, {.op = PairOp::add, .again = again});
    } else {
      const Tensor own = gather(run, edges.graph, receivers(block, h), Side::receiver, again);
      scores = nn::add(run, node_scores(run, own, src_, dst_, spec_.heads).left,
                       node_scores(run, messages, src_, dst_, spec_.heads).right);
    }
    const Tensor weights = edge_softmax(run, edges.graph, scores, kSlope, again);
    return aggregate(run, edges.messages, messages, {.op = EdgeOp::mul, .edge = weights}, out);
  }

  Param &weight_, &src_, &dst_, &bias_;
  LayerSpec spec_;
};

// W [x_i | x_j - x_i] + b = (W [x_i | -x_i] + b) + W [0 | x_j].
class EdgeConv final : public Layer {
 public:
  EdgeConv(std::span<Param> p, const LayerSpec& spec) : weight_(p[0]), bias_(p[1]), spec_(spec) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Rewrites& r = spec_.rewrites;
    if (!r.postpone) return on_edges(run, *block.plain, receivers(block, x), x, out);
    const Tensor own =
        linear(run, block.receivers, edge_side(run, receivers(block, x), Side::receiver), weight_, DType::f32, &bias_);
    const DType type = r.fuse ? run.numerics.activations : DType::f32;
    const Tensor other = linear(run, block.senders, edge_side(run, x, Side::sender), weight_, type);
    if (r.fuse) return aggregate(run, block, other, {.reduce = spec_.aggregate, .add = own}, out);
    const Tensor messages = pair_values(run, block.plain->graph, own, other, {.op = PairOp::add, .again = r.recompute});
    return aggregate(run, block.plain->messages, messages, {.reduce = spec_.aggregate}, out);
  }

 private:
  // The product of every edge.
  Tensor on_edges(Run& run, const EdgeBlock& edges, const Tensor& own, const Tensor& x, DType out) const {
    const bool again = spec_.rewrites.recompute;
    const Tensor receiver = edge_side(run, gather(run, edges.graph, own, Side::receiver, again), Side::receiver),
                 sender = edge_side(run, gather(run, edges.graph, x, Side::sender, again), Side::sender),
                 pairs = nn::add(run, receiver, sender, run.numerics.products);
    const Tensor messages = linear(run, edges.messages.senders, pairs, weight_, DType::f32, &bias_);
    return aggregate(run, edges.messages, messages, {.reduce = spec_.aggregate}, out);
  }

  Param &weight_, &bias_;
  LayerSpec spec_;
};

class Monet final : public Layer {
 public:
  Monet(std::span<Param> p, const LayerSpec& spec)
      : g_(p[0]), mu_(p[1]), sigma_(p[2]), root_(p[3]), bias_(p[4]), spec_(spec) {}
  // Kernels are heads of one product, summed after the aggregation.
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Tensor h = linear(run, block.senders, x, g_, run.numerics.activations);
    const Rewrites& r = spec_.rewrites;
    const Messages messages{.op = EdgeOp::mul,
                            .reduce = spec_.aggregate,
                            .edge = gaussians(run, block.pseudo_view(), mu_, sigma_, r.recompute)};
    const Tensor all = r.fuse ? aggregate(run, block, h, messages, DType::f32)
                              : reduce_edges(run, *block.plain, h, messages, r, DType::f32);
    Tensor y = linear(run, block.receivers, receivers(block, x), root_, DType::f32, &bias_);
    for (int64_t first = 0; first < all.dim(1); first += spec_.out)
      y = nn::add(run, y, all.slice(1, first, spec_.out), first + spec_.out == all.dim(1) ? out : DType::f32);
    return y;
  }

 private:
  Param &g_, &mu_, &sigma_, &root_, &bias_;
  LayerSpec spec_;
};

}  // namespace

bool needs_edge_blocks(Kind kind, const Rewrites& rewrites) {
  return !rewrites.fuse || (!rewrites.postpone && (kind == Kind::gat || kind == Kind::edgeconv));
}

Block block_for(Kind kind, const Rewrites& rewrites, graph::Graph graph, sparse::Use use) {
  const EdgeValues values = kind == Kind::gcn     ? EdgeValues::norm
                            : kind == Kind::monet ? EdgeValues::pseudo
                                                  : EdgeValues::none;
  Block block = make_block(std::move(graph), values, use);
  if (needs_edge_blocks(kind, rewrites)) add_edge_blocks(block);
  return block;
}

bool product_first(const LayerSpec& spec, const Block& block) {
  if (!spec.rewrites.order) return spec.kind == Kind::gcn;
  if (spec.kind == Kind::sage && picks(spec.aggregate)) return false;  // not linear
  // An operation of an edge waits for memory: about four of a product take its time (src/kernels/spmm/README.md).
  constexpr double kEdge = 4;
  const double out = static_cast<double>(spec.kind == Kind::gin ? 2 * spec.out : spec.out),
               in = static_cast<double>(spec.in), edges = static_cast<double>(block.graph.edges());
  // After the aggregation, features need no gradient through it; the weight always does through a product before it.
  const double back = spec.first && spec.rewrites.first ? 0 : 1;
  const double after = kEdge * edges * in * (1 + back) + static_cast<double>(block.rows()) * in * out * (2 + back),
               before = kEdge * edges * out * 2 + static_cast<double>(block.cols()) * in * out * (2 + back);
  return before < after;
}

Tensor sage_forward(Run& run, const Block& block, const Tensor& x, const Tensor& x_dst, const LayerSpec& spec,
                    std::span<Param> p, DType out) {
  const Messages messages{.reduce = spec.aggregate};
  const auto received = [&](const Tensor& from, DType type) {
    return spec.rewrites.fuse ? aggregate(run, block, from, messages, type)
                              : reduce_edges(run, *block.plain, from, messages, spec.rewrites, type);
  };
  const bool before = product_first(spec, block);
  const Tensor own = linear(run, block.receivers, x_dst, p[2], DType::f32, before ? &p[1] : nullptr);
  const Tensor from = before
                          ? received(linear(run, block.senders, x, p[0], run.numerics.activations), DType::f32)
                          : linear(run, block.receivers, received(x, run.numerics.products), p[0], DType::f32, &p[1]);
  return nn::add(run, from, own, out);
}

std::unique_ptr<Layer> make_layer(const LayerSpec& spec, std::span<Param> p) {
  switch (spec.kind) {
    case Kind::gcn:
      return std::make_unique<Gcn>(p, spec);
    case Kind::sage:
      return std::make_unique<Sage>(p.first(3), spec);
    case Kind::gin:
      return std::make_unique<Gin>(p, spec);
    case Kind::gat:
      return std::make_unique<Gat>(p, spec);
    case Kind::edgeconv:
      return std::make_unique<EdgeConv>(p, spec);
    case Kind::monet:
      return std::make_unique<Monet>(p, spec);
  }
  return nullptr;
}

}  // namespace braid::gnn
