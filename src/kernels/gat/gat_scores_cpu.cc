// Scores of nodes, plain loops that the compiler turns into vectors: they are a thousandth of the work on edges.
#include <algorithm>

#include "kernels/gat/gat_rows.h"
#include "sys/parallel.h"

namespace braid {
namespace {

template <class X>
void score_rows(const GatScoresFwd& op, int64_t begin, int64_t end) {
  const int64_t heads = op.left.dim(1), part = op.x.dim(1) / heads;
  const float *a_src = op.a_src.as<float>(), *a_dst = op.a_dst.as<float>();
  for (int64_t t = begin; t < end; ++t) {
    const X* x = op.x.as<X>(t);
    for (int64_t h = 0; h < heads; ++h) {
      float right = 0, left = 0;
      for (int64_t c = h * part; c < (h + 1) * part; ++c) {
        right += a_src[c] * to_float(x[c]);
        left += a_dst[c] * to_float(x[c]);
      }
      op.right.as<float>(t)[h] = right;
      op.left.as<float>(t)[h] = left;
    }
  }
}

// dx of rows, and their share of da_src and da_dst in `sums`, 2 D floats.
template <class X>
void backward_rows(const GatScoresBwd& op, int64_t begin, int64_t end, float* sums) {
  const int64_t width = op.x.dim(1), heads = op.dleft.dim(1), part = width / heads;
  const float *a_src = op.a_src.as<float>(), *a_dst = op.a_dst.as<float>();
  std::fill(sums, sums + 2 * width, 0.0f);
  for (int64_t t = begin; t < end; ++t) {
    const X* x = op.x.as<X>(t);
    float* dx = op.dx.as<float>(t);
    for (int64_t h = 0; h < heads; ++h) {
      const float dright = op.dright.as<float>(t)[h], dleft = op.dleft.as<float>(t)[h];
      for (int64_t c = h * part; c < (h + 1) * part; ++c) {
        dx[c] = dright * a_src[c] + dleft * a_dst[c];
        sums[c] += dright * to_float(x[c]);
        sums[width + c] += dleft * to_float(x[c]);
      }
    }
  }
}

int64_t blocks_of(const GatScoresBwd& op) { return (op.x.dim(0) + kScoreRows - 1) / kScoreRows; }

}  // namespace

void gat_scores_fwd_loops(Ctx& ctx, const GatScoresFwd& op, std::span<std::byte>) {
  sys::parallel_for(sys::team_for(ctx.threads, op.flops()), op.x.dim(0), 64, [&](int64_t begin, int64_t end) {
    op.x.dtype == DType::bf16 ? score_rows<Bf16>(op, begin, end) : score_rows<float>(op, begin, end);
  });
}

int64_t gat_scores_bwd_workspace(const GatScoresBwd& op, int) {
  return blocks_of(op) * 2 * op.x.dim(1) * static_cast<int64_t>(sizeof(float));
}

void gat_scores_bwd_loops(Ctx& ctx, const GatScoresBwd& op, std::span<std::byte> workspace) {
  auto* sums = reinterpret_cast<float*>(workspace.data());
  const int64_t width = op.x.dim(1), blocks = blocks_of(op);
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), blocks, [&](int64_t block) {
    const int64_t first = block * kScoreRows, last = std::min(op.x.dim(0), first + kScoreRows);
    float* own = sums + block * 2 * width;
    op.x.dtype == DType::bf16 ? backward_rows<Bf16>(op, first, last, own) : backward_rows<float>(op, first, last, own);
  });
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t c = 0; c < width; ++c) {
      op.da_src.as<float>()[c] += sums[block * 2 * width + c];
      op.da_dst.as<float>()[c] += sums[block * 2 * width + width + c];
    }
  }
}

}  // namespace braid
