#include "kernels/gat/gat.h"

#include <initializer_list>

#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/gat/gat_ref.h"
#include "kernels/gat/gat_rows.h"

namespace braid {
namespace {

void scores_ref(Ctx&, const GatScoresFwd& op, std::span<std::byte>) {
  std::vector<double> y(static_cast<size_t>(op.left.count()));
  gat_scores_ref(op.left.dim(1), to_doubles(op.x), to_doubles(op.a_src), y);
  store(op.right, y);
  gat_scores_ref(op.left.dim(1), to_doubles(op.x), to_doubles(op.a_dst), y);
  store(op.left, y);
}

void scores_bwd_ref(Ctx&, const GatScoresBwd& op, std::span<std::byte>) {
  const int64_t width = op.x.dim(1), heads = op.dleft.dim(1), part = width / heads;
  std::vector<double> da_src(static_cast<size_t>(width)), da_dst(da_src.size());
  for (int64_t at = 0; at < op.x.count(); ++at) {
    const int64_t c = at % width, head = at / width * heads + c / part;
    const double dright = element(op.dright, head), dleft = element(op.dleft, head), x = element(op.x, at);
    set_element(op.dx, at, dright * element(op.a_src, c) + dleft * element(op.a_dst, c));
    da_src[static_cast<size_t>(c)] += dright * x;
    da_dst[static_cast<size_t>(c)] += dleft * x;
  }
  accumulate(op.da_src, da_src);
  accumulate(op.da_dst, da_dst);
}

void fwd_ref(Ctx&, const GatFwd& op, std::span<std::byte>) {
  check_gat(op);
  const GatRef<double> in{.x = to_doubles(op.x),
                          .left = to_doubles(op.left),
                          .right = to_doubles(op.right),
                          .rows = op.y.dim(0),
                          .width = op.y.dim(1),
                          .heads = op.left.dim(1)};
  std::vector<double> y(static_cast<size_t>(op.y.count())), top(in.left.size()), sum(top.size());
  gat_ref(op, in, y, top, sum);
  store(op.y, y);
  store(op.top, top);
  store(op.sum, sum);
}

void bwd_ref(Ctx&, const GatBwd& op, std::span<std::byte>) {
  check_gat(op);
  const int64_t width = op.y.dim(1), heads = op.left.dim(1), part = width / heads;
  const GatRef<double> in{.x = to_doubles(op.x),
                          .left = to_doubles(op.left),
                          .right = to_doubles(op.right),
                          .rows = op.y.dim(0),
                          .width = width,
                          .heads = heads};
  const auto slope = static_cast<double>(op.slope);
  std::vector<double> dx(in.x.size()), dleft(in.left.size()), dright(in.right.size());
  for (int64_t i = 0; i < in.rows; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t head = i * heads + h;
      const auto dot = [&](const auto& of) {
        double sum = 0;
        for (int64_t c = h * part; c < (h + 1) * part; ++c) sum += element(op.dy, i * width + c) * of(c);
        return sum;
      };
      const double mean = dot([&](int64_t c) { return element(op.y, i * width + c); });
      each_source(op, i, [&](int64_t j, int64_t e) {
        const double factor = factor_ref(op, e, heads, h);
        const double s = in.score(i, j, h, slope), p = std::exp(s - element(op.top, head)) / element(op.sum, head);
        const double g = factor * dot([&](int64_t c) { return in.x[static_cast<size_t>(j * width + c)]; });
        const double de = p * (g - mean) * (s > 0 ? 1 : slope);
        dleft[static_cast<size_t>(head)] += de;
        dright[static_cast<size_t>(j * heads + h)] += de;
        for (int64_t c = h * part; c < (h + 1) * part; ++c)
          dx[static_cast<size_t>(j * width + c)] += p * factor * element(op.dy, i * width + c);
      });
    }
  }
  store(op.dx, dx);
  store(op.dleft, dleft);
  store(op.dright, dright);
}

template <class... Views>
bool plain(const Views&... views) {
  return (views.contiguous() && ...);
}

const char* scores_supports(const GatScoresFwd& op) {
  return op.x.rows_contiguous() && plain(op.left, op.right) ? nullptr : "strided";
}
const char* scores_bwd_supports(const GatScoresBwd& op) {
  return op.x.rows_contiguous() && op.dx.rows_contiguous() && plain(op.dleft, op.dright) ? nullptr : "strided";
}
const char* fwd_supports(const GatFwd& op) {
  return op.x.rows_contiguous() && op.y.rows_contiguous() && plain(op.left, op.right, op.top, op.sum) ? nullptr
                                                                                                      : "strided";
}
const char* bwd_supports(const GatBwd& op) {
  if (op.dy.dtype != DType::f32) return "dy is not F32";
  return plain(op.x, op.y, op.dy, op.dx, op.left, op.right, op.top, op.sum, op.dleft, op.dright) ? nullptr : "strided";
}

// What is read by the rows for GPUs.
const char* gpu_supports(std::initializer_list<View> views) {
  for (const View& v : views) {
    if (v.dtype != DType::f32 && v.dtype != DType::bf16) return "neither F32 nor BF16";
    if (v.stride(0) >= int64_t{1} << 31) return "rows too far apart";
  }
  return nullptr;
}
const char* scores_cuda_supports(const GatScoresFwd& op) {
  const char* reason = gpu_supports({op.x});
  return reason ? reason : scores_supports(op);
}
const char* scores_bwd_cuda_supports(const GatScoresBwd& op) {
  const char* reason = gpu_supports({op.x});
  return reason ? reason : scores_bwd_supports(op);
}
const char* fwd_cuda_supports(const GatFwd& op) {
  if (op.drop.rate > 0) return "dropout of attention";
  const char* reason = gpu_supports({op.x, op.y});
  return reason ? reason : fwd_supports(op);
}
const char* bwd_cuda_supports(const GatBwd& op) {
  if (op.drop.rate > 0) return "dropout of attention";
  const char* reason = gpu_supports({op.x, op.y, op.dy});
  return reason ? reason : bwd_supports(op);
}

template <class Op>
void check_shapes(const Op& op) {
  const int64_t rows = op.y.dim(0), heads = op.left.dim(1);
  CHECK(op.rowptr.dim(0) == rows + 1, "{}: {} row pointers, {} rows", Op::name, op.rowptr.dim(0), rows);
  CHECK(heads > 0 && op.y.dim(1) % heads == 0, "{}: {} channels, {} heads", Op::name, op.y.dim(1), heads);
  CHECK(!op.loops || rows <= op.x.dim(0), "{}: {} rows, {} sources", Op::name, rows, op.x.dim(0));
  CHECK(op.drop.rate >= 0 && op.drop.rate < 1, "{}: dropout {}", Op::name, op.drop.rate);
}

}  // namespace

void check_gat(const GatFwd& op) { check_shapes(op); }
void check_gat(const GatBwd& op) {
  check_shapes(op);
  CHECK(op.out_rowptr.dim(0) == op.x.dim(0) + 1, "{}: {} row pointers out", GatBwd::name, op.out_rowptr.dim(0));
  CHECK(op.drop.rate == 0 || op.order, "{}: dropout without order", GatBwd::name);
}

// Not in gat_cpu.cc, whose code for each instruction set has no std::array (docs/internals/cpu.md).
void attention_factors(const AttentionDropout& drop, const int64_t* edges, int64_t n, int64_t heads, int64_t head,
                       float* factors) {
  const auto threshold = static_cast<uint32_t>(static_cast<double>(drop.rate) * 0x1p32);
  const float kept = 1 / (1 - drop.rate);
  const int64_t blocks = (heads + 3) / 4;
  for (int64_t k = 0; k < n; ++k) {
    const auto r = philox(drop.key, static_cast<uint64_t>(edges[k] * blocks + head / 4), drop.step);
    factors[k] = r[static_cast<size_t>(head % 4)] < threshold ? 0 : kept;
  }
}

std::span<const Row<GatScoresFwd>> GatScoresFwd::rows() {
  static constexpr Row<GatScoresFwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &scores_cuda_supports,
       .run = kHasCuda ? &gat_scores_fwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "loops", .numerics = "f32", .supports = &scores_supports, .run = &gat_scores_fwd_loops},
      {.name = "ref", .numerics = "f64", .run = &scores_ref},
  };
  return kRows;
}

std::span<const Row<GatScoresBwd>> GatScoresBwd::rows() {
  static constexpr Row<GatScoresBwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &scores_bwd_cuda_supports,
       .run = kHasCuda ? &gat_scores_bwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "loops",
       .numerics = "f32",
       .supports = &scores_bwd_supports,
       .workspace = &gat_scores_bwd_workspace,
       .run = &gat_scores_bwd_loops},
      {.name = "ref", .numerics = "f64", .run = &scores_bwd_ref},
  };
  return kRows;
}

std::span<const Row<GatFwd>> GatFwd::rows() {
  static constexpr Row<GatFwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &fwd_cuda_supports,
       .run = kHasCuda ? &gat_fwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "online", .numerics = "f32", .supports = &fwd_supports, .run = &gat_fwd_online},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<GatBwd>> GatBwd::rows() {
  static constexpr Row<GatBwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &bwd_cuda_supports,
       .run = kHasCuda ? &gat_bwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "recompute",
       .numerics = "f32",
       .supports = &bwd_supports,
       .workspace = &gat_bwd_workspace,
       .run = &gat_bwd_recompute},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
