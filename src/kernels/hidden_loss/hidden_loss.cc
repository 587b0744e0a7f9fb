#include "kernels/hidden_loss/hidden_loss.h"

#include <cmath>

#include "core/ref.h"
#include "kernels/hidden_loss/hidden_loss_ref.h"
#include "sys/parallel.h"

namespace braid {
namespace {

// The gradient through the reciprocal of |x| |y|, which is 0 where there is no direction.
struct Direction {
  double cosine = 0, scale = 0, squares = 1;
  Direction(double product, double x, double y) {
    if (x == 0 || y == 0) return;
    scale = 1 / (std::sqrt(x) * std::sqrt(y));
    cosine = product * scale;
    squares = x;
  }
  double slope(double x, double y) const { return -(y * scale - cosine * x / squares); }
};

// Sums of one row in FP64: they are few beside the products of a layer.
void one_token(const HiddenLoss& op, int64_t t) {
  const int64_t width = op.x.dim(1);
  const float *x = op.x.as<float>(t), *y = op.y.as<float>(t);
  double product = 0, squares = 0, teacher = 0;
  for (int64_t i = 0; i < width; ++i) {
    const auto a = static_cast<double>(x[i]), b = static_cast<double>(y[i]);
    product += a * b;
    squares += a * a;
    teacher += b * b;
  }
  const Direction d(product, squares, teacher);
  op.loss.as<float>()[t] = static_cast<float>(1 - d.cosine);
  if (!op.dx) return;
  const auto weight = static_cast<double>(op.token_weight.as<float>()[t]);
  float* dx = op.dx.as<float>(t);
  for (int64_t i = 0; i < width; ++i)
    dx[i] = static_cast<float>(weight * d.slope(static_cast<double>(x[i]), static_cast<double>(y[i])));
}

void by_tokens(Ctx& ctx, const HiddenLoss& op, std::span<std::byte>) {
  constexpr int64_t kGrain = 16;  // tokens, as in add_fwd
  sys::parallel_for(ctx.threads, op.x.dim(0), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) one_token(op, t);
  });
}

void reference(Ctx&, const HiddenLoss& op, std::span<std::byte>) {
  const auto width = static_cast<size_t>(op.x.dim(1));
  const std::vector<double> all_x = to_doubles(op.x), all_y = to_doubles(op.y);
  for (int64_t t = 0; t < op.x.dim(0); ++t) {
    const auto at = static_cast<std::ptrdiff_t>(static_cast<size_t>(t) * width);
    const auto end = at + static_cast<std::ptrdiff_t>(width);
    const std::vector<double> x(all_x.begin() + at, all_x.begin() + end), y(all_y.begin() + at, all_y.begin() + end);
    set_element(op.loss, t, hidden_loss_ref(x, y));
    if (!op.dx) continue;
    double product = 0, squares = 0, teacher = 0;
    for (size_t i = 0; i < width; ++i) {
      product += x[i] * y[i];
      squares += x[i] * x[i];
      teacher += y[i] * y[i];
    }
    const Direction d(product, squares, teacher);
    for (size_t i = 0; i < width; ++i)
      set_element(op.dx, at + static_cast<int64_t>(i), element(op.token_weight, t) * d.slope(x[i], y[i]));
  }
}

const char* by_tokens_supports(const HiddenLoss& op) {
  for (const View& v : {op.x, op.y, View(op.dx)}) {
    if (v && v.dtype != DType::f32) return "not F32";
    if (v && !v.rows_contiguous()) return "strided rows";
  }
  return op.token_weight.contiguous() && View(op.loss).contiguous() ? nullptr : "strided tokens";
}

}  // namespace

std::span<const Row<HiddenLoss>> HiddenLoss::rows() {
  static constexpr Row<HiddenLoss> kRows[] = {
      {.name = "tokens", .numerics = "f32", .supports = &by_tokens_supports, .run = &by_tokens},
      {.name = "ref", .numerics = "f64", .run = &reference},
  };
  return kRows;
}

}  // namespace braid
