#include "gnn/layer.h"

#include <cmath>
#include <utility>

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

}  // namespace

std::vector<LayerParam> params_of(const LayerSpec& s) {
  const LayerParam zero_bias{.name = "bias", .shape = {s.out}};
  switch (s.kind) {
    case Kind::gcn:
      return {{.name = "lin.weight", .shape = {s.out, s.in}, .matrix = true, .bound = glorot(s.in, s.out)}, zero_bias};
    case Kind::sage:
      return {linear_weight("lin_l.weight", s.out, s.in), linear_bias("lin_l.bias", s.out, s.in),
              linear_weight("lin_r.weight", s.out, s.in)};
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

class Gcn final : public Layer {
 public:
  explicit Gcn(std::span<Param> p) : weight_(p[0]), bias_(p[1]) {}
  // The aggregation takes the narrower of its two sides.
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Messages messages{.op = EdgeOp::mul, .weights = block.norm_view(), .self = block.self_norm_view()};
    const DType products = run.numerics.products, between = run.numerics.activations;
    if (weight_.value.cols < weight_.value.rows)
      return linear(run, block.receivers, aggregate(run, block, x, messages, products), weight_, out, &bias_);
    return bias(run, aggregate(run, block, linear(run, block.senders, x, weight_, between), messages, out), bias_, out);
  }

 private:
  Param &weight_, &bias_;
};

class Sage final : public Layer {
 public:
  Sage(std::span<Param> p, Reduce aggregate) : left_(p[0]), bias_(p[1]), right_(p[2]), aggregate_(aggregate) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Tensor from = aggregate(run, block, x, {.reduce = aggregate_}, run.numerics.products);
    return nn::add(run, linear(run, block.receivers, from, left_, DType::f32, &bias_),
                   linear(run, block.receivers, receivers(block, x), right_, DType::f32), out);
  }

 private:
  Param &left_, &bias_, &right_;
  Reduce aggregate_;
};

class Gin final : public Layer {
 public:
  Gin(std::span<Param> p, float eps) : up_(p[0]), up_bias_(p[1]), down_(p[2]), down_bias_(p[3]), own_(1 + eps) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Tensor sum = aggregate(run, block, x, {.own = own_}, run.numerics.products),
                 h = linear(run, block.receivers, sum, up_, run.numerics.activations, &up_bias_);
    return linear(run, block.receivers, nn::act(run, h, {}, Act::relu), down_, out, &down_bias_);
  }

 private:
  Param &up_, &up_bias_, &down_, &down_bias_;
  float own_;
};

class Gat final : public Layer {
 public:
  Gat(std::span<Param> p, int64_t heads) : weight_(p[0]), src_(p[1]), dst_(p[2]), bias_(p[3]), heads_(heads) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    constexpr float kSlope = 0.2f;  // PyG's negative_slope
    const Tensor h = linear(run, block.senders, x, weight_, run.numerics.activations);
    return bias(run, attention(run, block, h, src_, dst_, heads_, kSlope, out), bias_, out);
  }

 private:
  Param &weight_, &src_, &dst_, &bias_;
  int64_t heads_;
};

// W [x_i | x_j - x_i] + b = (W [x_i | -x_i] + b) + W [0 | x_j].
class EdgeConv final : public Layer {
 public:
  EdgeConv(std::span<Param> p, Reduce aggregate) : weight_(p[0]), bias_(p[1]), aggregate_(aggregate) {}
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Tensor own =
        linear(run, block.receivers, edge_side(run, receivers(block, x), Side::receiver), weight_, DType::f32, &bias_);
    const Tensor other = linear(run, block.senders, edge_side(run, x, Side::sender), weight_, run.numerics.activations);
    return aggregate(run, block, other, {.reduce = aggregate_, .add = own}, out);
  }

 private:
  Param &weight_, &bias_;
  Reduce aggregate_;
};

class Monet final : public Layer {
 public:
  Monet(std::span<Param> p, const LayerSpec& spec)
      : g_(p[0]), mu_(p[1]), sigma_(p[2]), root_(p[3]), bias_(p[4]), out_(spec.out), aggregate_(spec.aggregate) {}
  // Kernels are heads of one product, summed after the aggregation.
  Tensor forward(Run& run, const Block& block, const Tensor& x, DType out) const override {
    const Tensor h = linear(run, block.senders, x, g_, run.numerics.activations);
    const Messages messages{
        .op = EdgeOp::mul, .reduce = aggregate_, .edge = gaussians(run, block.pseudo_view(), mu_, sigma_)};
    const Tensor all = aggregate(run, block, h, messages, DType::f32);
    Tensor y = linear(run, block.receivers, receivers(block, x), root_, DType::f32, &bias_);
    for (int64_t first = 0; first < all.dim(1); first += out_)
      y = nn::add(run, y, all.slice(1, first, out_), first + out_ == all.dim(1) ? out : DType::f32);
    return y;
  }

 private:
  Param &g_, &mu_, &sigma_, &root_, &bias_;
  int64_t out_;
  Reduce aggregate_;
};

}  // namespace

std::unique_ptr<Layer> make_layer(const LayerSpec& spec, std::span<Param> p) {
  switch (spec.kind) {
    case Kind::gcn:
      return std::make_unique<Gcn>(p);
    case Kind::sage:
      return std::make_unique<Sage>(p, spec.aggregate);
    case Kind::gin:
      return std::make_unique<Gin>(p, spec.eps);
    case Kind::gat:
      return std::make_unique<Gat>(p, spec.heads);
    case Kind::edgeconv:
      return std::make_unique<EdgeConv>(p, spec.aggregate);
    case Kind::monet:
      return std::make_unique<Monet>(p, spec);
  }
  return nullptr;
}

}  // namespace braid::gnn
