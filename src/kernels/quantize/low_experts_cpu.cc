// Experts on quantised operands, on a CPU: the (token, slot) pairs are sorted by expert, stable by token; then each
// task is one expert, computed by one thread in its own scratch, so the team changes no bit; then the slots of each
// token are added in order. Scratch is sized for the most rows an expert can have, one per token.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quantize/low_experts_rows.h"
#include "kernels/quantize/quantize_rows.h"
#include "math/packed_weight.h"
#include "sys/parallel.h"

namespace braid {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A bump allocator over a workspace; without a base it only measures.
class Cut {
 public:
  explicit Cut(std::byte* base) : base_(base) {}
  template <class Num>
  Num* take(int64_t count) {
    std::byte* const p = base_ ? base_ + bytes_ : nullptr;
    bytes_ += aligned(count * static_cast<int64_t>(sizeof(Num)));
    return reinterpret_cast<Num*>(p);
  }
  std::byte* take(DType dtype, int64_t count) { return take<std::byte>(count * size_of(dtype)); }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

// What all threads share.
struct Sorted {
  int32_t *offsets, *order;  // [E + 1] first sorted position of each expert, [T K] slot at each
  float* parts;              // [T K, R] by slot
};
Sorted cut_sorted(Cut& cut, const View& experts, int64_t count, int64_t width) {
  return {cut.take<int32_t>(count + 1), cut.take<int32_t>(experts.count()), cut.take<float>(experts.count() * width)};
}

void sort(const View& experts, int64_t count, const Sorted& s) {
  const int64_t tokens = experts.dim(0), k = experts.dim(1);
  std::fill_n(s.offsets, count + 1, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = experts.as<int32_t>(t)[j];
      CHECK(e >= 0 && e < count, "low_experts: token {} has expert {} of {}", t, e, count);
      ++s.offsets[e + 1];
    }
  }
  for (int64_t e = 0; e < count; ++e) s.offsets[e + 1] += s.offsets[e];
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) s.order[s.offsets[experts.as<int32_t>(t)[j]]++] = static_cast<int32_t>(t * k + j);
  }
  for (int64_t e = count; e > 0; --e) s.offsets[e] = s.offsets[e - 1];
  s.offsets[0] = 0;
}

// Matrices of one expert, in scratch of one thread. Quantised ones have whole Hadamard blocks of rows.
struct Own {
  std::byte *x, *hidden;    // [n, R], [n, F] in the type of x
  std::byte *left, *right;  // quantised operands
  float *u, *g, *q;         // [n, F]; g also dgate, q also du
  float *dy, *sums;         // [n, R]; sums also du of the gates' dx
  std::span<std::byte> panels;
  int64_t bytes;
};

struct Sizes {
  int64_t tokens, width, hidden, threads, experts;  // T, R, F
  bool gated, backward;
  packed::Kernel kernel;

  int64_t rows() const { return (tokens + 15) / 16 * 16; }
  int64_t team() const { return std::min(threads, experts); }
  int64_t panel_bytes(int64_t m, int64_t n, int64_t depth) const {
    return packed::multiply_bytes(kernel, {}, m, n, depth);
  }
};

Own cut_own(const Sizes& z, DType type, std::byte* base) {
  Cut cut(base);
  const int64_t n = z.rows(), wide = std::max(z.width, z.hidden);
  Own o{};
  o.x = cut.take(type, n * z.width);
  o.hidden = cut.take(type, n * z.hidden);
  o.left = cut.take(type, n * wide);
  o.right = cut.take(type, std::max(z.width * z.hidden, n * wide));
  o.u = cut.take<float>(n * z.hidden);
  if (z.gated) o.g = cut.take<float>(n * z.hidden);
  if (z.backward) o.q = cut.take<float>(n * z.hidden);
  if (z.backward) o.dy = cut.take<float>(n * z.width);
  o.sums = cut.take<float>(n * z.width);
  int64_t panels = std::max(z.panel_bytes(n, z.hidden, z.width), z.panel_bytes(n, z.width, z.hidden));
  if (z.backward) panels = std::max({panels, z.panel_bytes(z.hidden, z.width, n), z.panel_bytes(z.width, z.hidden, n)});
  o.panels = {cut.take<std::byte>(panels), static_cast<size_t>(panels)};
  o.bytes = cut.bytes();
  return o;
}

template <class Op>
Sizes sizes_of(packed::Class c, const Op& op, int threads) {
  return {.tokens = op.x.dim(0),
          .width = op.x.dim(1),
          .hidden = op.up[0].rows,
          .threads = threads,
          .experts = static_cast<int64_t>(op.up.size()),
          .gated = !op.gate.empty(),
          .backward = std::is_same_v<Op, LowExpertsBwd>,
          .kernel = packed::kernel_of(c)};
}

MutView matrix(std::byte* data, DType dtype, int64_t rows, int64_t cols) { return {data, dtype, {rows, cols}}; }

float number_at(const std::byte* row, DType dtype, int64_t i) {
  return dtype == DType::f32 ? reinterpret_cast<const float*>(row)[i] : to_float(reinterpret_cast<const Bf16*>(row)[i]);
}

struct Activation {
  float value, slope;
};
Activation activation(float v, bool silu) {
  if (!silu) {
    const float positive = std::max(v, 0.0f);
    return {positive * positive, 2 * positive};
  }
  const float s = 1 / (1 + std::exp(-v));
  return {v * s, s + v * s * (1 - s)};
}

// One expert's rows of the batch, by one thread.
template <class Op>
class Expert {
 public:
  Expert(const Op& op, const Sizes& sizes, const Sorted& sorted, size_t e, std::byte* own)
      : op_(op),
        z_(sizes),
        s_(sorted),
        e_(e),
        type_(op.x.dtype),
        first_(sorted.offsets[e]),
        n_(sorted.offsets[e + 1] - first_),
        own_(cut_own(sizes, op.x.dtype, own)) {
    CHECK(n_ <= sizes.tokens, "low_experts: {} rows of {} tokens chose expert {}", n_, sizes.tokens, e);
  }

  // x, the products of up and gate, and the hidden rows.
  void hidden() {
    const int64_t bytes = z_.width * size_of(type_);
    for (int64_t i = 0; i < n_; ++i)
      std::memcpy(own_.x + i * bytes, op_.x.data + token(i) * op_.x.stride(0) * size_of(type_),
                  static_cast<size_t>(bytes));
    forward(matrix(own_.x, type_, n_, z_.width), op_.up[e_], own_.u, z_.hidden);
    if (z_.gated) forward(matrix(own_.x, type_, n_, z_.width), op_.gate[e_], own_.g, z_.hidden);
    for (int64_t i = 0; i < n_ * z_.hidden; ++i) {
      const float value =
          z_.gated ? activation(own_.g[i], op_.silu).value * own_.u[i] : activation(own_.u[i], op_.silu).value;
      if (type_ == DType::bf16) {
        reinterpret_cast<Bf16*>(own_.hidden)[i] = to_bf16(value);
      } else {
        reinterpret_cast<float*>(own_.hidden)[i] = value;
      }
    }
  }

  void result() {
    forward(hidden_view(), op_.down[e_], own_.sums, z_.width);
    scatter();
  }

  void gradients() {
    for (int64_t i = 0; i < n_; ++i) {
      const std::byte* row = op_.dy.data + token(i) * op_.dy.stride(0) * size_of(op_.dy.dtype);
      for (int64_t r = 0; r < z_.width; ++r) own_.dy[i * z_.width + r] = number_at(row, op_.dy.dtype, r);
    }
    const MutView dy = mut_view_of(own_.dy, {n_, z_.width}), q = mut_view_of(own_.q, {n_, z_.hidden});
    backward_data(dy, op_.down[e_], op_.noise.down, own_.q, z_.hidden);
    for (int64_t i = 0; i < n_; ++i) {
      const std::byte* hidden = own_.hidden + i * z_.hidden * size_of(type_);
      double dot = 0;
      for (int64_t f = 0; f < z_.hidden; ++f)
        dot += static_cast<double>(own_.q[i * z_.hidden + f]) * static_cast<double>(number_at(hidden, type_, f));
      op_.dweights.template as<float>(token(i))[slot(i) % op_.experts.dim(1)] = static_cast<float>(dot);
    }
    scale_rows(own_.dy, z_.width);
    if (!op_.ddown.empty()) backward_weight(dy, hidden_view(), op_.noise.down, op_.ddown[e_]);
    scale_rows(own_.q, z_.hidden);
    for (int64_t i = 0; i < n_ * z_.hidden; ++i) {
      const float d = own_.q[i];
      if (!z_.gated) {
        own_.q[i] = d * activation(own_.u[i], op_.silu).slope;
        continue;
      }
      const Activation a = activation(own_.g[i], op_.silu);
      own_.q[i] = d * a.value;
      own_.g[i] = d * a.slope * own_.u[i];
    }
    const MutView x = matrix(own_.x, type_, n_, z_.width);
    backward_data(q, op_.up[e_], op_.noise.up, own_.sums, z_.width);
    if (!op_.dup.empty()) backward_weight(q, x, op_.noise.up, op_.dup[e_]);
    if (z_.gated) {
      const MutView dg = mut_view_of(own_.g, {n_, z_.hidden});
      backward_data(dg, op_.gate[e_], op_.noise.gate, own_.dy, z_.width);
      for (int64_t i = 0; i < n_ * z_.width; ++i) own_.sums[i] += own_.dy[i];
      if (!op_.dgate.empty()) backward_weight(dg, x, op_.noise.gate, op_.dgate[e_]);
    }
    scatter();
  }

 private:
  int64_t slot(int64_t i) const { return s_.order[first_ + i]; }
  int64_t token(int64_t i) const { return slot(i) / op_.experts.dim(1); }
  View hidden_view() const { return matrix(own_.hidden, type_, n_, z_.hidden); }

  void scatter() const {
    for (int64_t i = 0; i < n_; ++i) std::copy_n(own_.sums + i * z_.width, z_.width, s_.parts + slot(i) * z_.width);
  }
  void scale_rows(float* rows, int64_t width) const {
    for (int64_t i = 0; i < n_; ++i) {
      const float w = op_.weights.template as<float>(token(i))[slot(i) % op_.experts.dim(1)];
      for (int64_t c = 0; c < width; ++c) rows[i * width + c] *= w;
    }
  }

  View quantized(const OperandSpec& spec, const View& x, std::byte* to, const Noise& noise = {}) const {
    const MutView q = matrix(to, type_, quantized_rows(spec, x.dim(0)), x.dim(1));
    quantize(1, spec, x, q, noise);
    return q;
  }
  Noise noise(uint32_t stream, uint32_t product) const requires std::is_same_v<Op, LowExpertsBwd> {
    return {.key = {.seed = op_.noise.seed, .stream = stream + 2 * static_cast<uint32_t>(e_) + product}};
  }

  void multiply(const packed::Source& a, const packed::WeightOperand& b, int64_t m, int64_t n, int64_t depth, float* y,
                int64_t y_stride, bool add) const {
    packed::multiply(z_.kernel,
                     {.a = a, .w = b, .rows = m, .cols = n, .depth = depth, .y = y, .y_stride = y_stride, .add = add},
                     own_.panels);
  }
  void forward(const View& x, const Weight& w, float* y, int64_t cols) const {
    const View a = quantized(op_.specs.forward_x, x, own_.left),
               b = quantized(op_.specs.forward_w, w.codes, own_.right);
    multiply(packed::along(a), {dense_weight(b), true}, n_, cols, w.cols, y, cols, false);
  }
  void backward_data(const View& dy, const Weight& w, uint32_t stream, float* dx, int64_t cols) const {
    const View a = quantized(op_.specs.data_dy, dy, own_.left, noise(stream, 0)),
               b = quantized(op_.specs.data_w, w.codes, own_.right);
    multiply(packed::along(a), {dense_weight(b), false}, n_, cols, w.rows, dx, cols, false);
  }
  void backward_weight(const View& dy, const View& x, uint32_t stream, const MutView& dw) const {
    const View a = quantized(op_.specs.weight_dy, dy, own_.left, noise(stream, 1)),
               b = quantized(op_.specs.weight_x, x, own_.right);
    multiply(packed::across(a), {dense_weight(b), false}, dw.dim(0), dw.dim(1), a.dim(0), dw.as<float>(), dw.stride(0),
             true);
  }

  const Op& op_;
  const Sizes& z_;
  const Sorted& s_;
  size_t e_;
  DType type_;
  int64_t first_, n_;
  Own own_;
};

// y_t = sum over slots of weights[t, j] parts[t, j], in slot order; without weights their sum.
void combine(int threads, const Sorted& s, int64_t slots, const View& weights, const MutView& y) {
  const int64_t width = y.dim(1);
  sys::parallel_for(threads, y.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t c = 0; c < width; ++c) {
        float sum = 0;
        for (int64_t j = 0; j < slots; ++j)
          sum += (weights ? weights.as<float>(t)[j] : 1.0f) * s.parts[(t * slots + j) * width + c];
        if (y.dtype == DType::bf16) {
          y.as<Bf16>(t)[c] = to_bf16(sum);
        } else {
          y.as<float>(t)[c] = sum;
        }
      }
    }
  });
}

template <class Op>
int64_t workspace_of(packed::Class c, const Op& op, int threads) {
  const Sizes z = sizes_of(c, op, threads);
  Cut cut(nullptr);
  cut_sorted(cut, op.experts, z.experts, z.width);
  return cut.bytes() + z.team() * cut_own(z, op.x.dtype, nullptr).bytes;
}

// body(expert) for every expert that was chosen; then the sums of each token.
template <class Op, class Body>
void run_experts(packed::Class c, Ctx& ctx, const Op& op, std::span<std::byte> workspace, const View& weights,
                 const MutView& y, const Body& body) {
  const Sizes z = sizes_of(c, op, ctx.threads);
  Cut cut(workspace.data());
  const Sorted sorted = cut_sorted(cut, op.experts, z.experts, z.width);
  std::byte* const own = workspace.data() + cut.bytes();
  const int64_t own_bytes = cut_own(z, op.x.dtype, nullptr).bytes;
  sort(op.experts, z.experts, sorted);
  sys::parallel_tasks(static_cast<int>(z.team()), z.experts, [&](int thread, int64_t e) {
    if (sorted.offsets[e] == sorted.offsets[e + 1]) return;
    Expert<Op> expert(op, z, sorted, static_cast<size_t>(e), own + thread * own_bytes);
    body(expert);
  });
  combine(ctx.threads, sorted, op.experts.dim(1), weights, y);
}

}  // namespace

int64_t low_experts_workspace(packed::Class c, const LowExpertsFwd& op, int threads) {
  return workspace_of(c, op, threads);
}
int64_t low_experts_workspace(packed::Class c, const LowExpertsBwd& op, int threads) {
  return workspace_of(c, op, threads);
}

void low_experts(packed::Class c, Ctx& ctx, const LowExpertsFwd& op, std::span<std::byte> workspace) {
  run_experts(c, ctx, op, workspace, op.weights, op.y, [](Expert<LowExpertsFwd>& expert) {
    expert.hidden();
    expert.result();
  });
}
void low_experts(packed::Class c, Ctx& ctx, const LowExpertsBwd& op, std::span<std::byte> workspace) {
  run_experts(c, ctx, op, workspace, {}, op.dx, [](Expert<LowExpertsBwd>& expert) {
    expert.hidden();
    expert.gradients();
  });
}

}  // namespace braid
