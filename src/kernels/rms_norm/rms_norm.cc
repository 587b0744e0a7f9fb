#include "kernels/rms_norm/rms_norm.h"

#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/rms_norm/rms_norm_ref.h"
#include "kernels/rms_norm/rms_norm_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const RmsNormFwd& op, std::span<std::byte>) {
  const int64_t tokens = op.x.dim(0), width = op.x.dim(1);
  std::vector<double> y(static_cast<size_t>(tokens * width)), rstd(static_cast<size_t>(tokens * op.groups));
  rms_norm_fwd_ref(tokens, width, op.groups, static_cast<double>(op.eps), to_doubles(op.x), to_doubles(op.z),
                   to_doubles(op.w), y, rstd, to_doubles(op.scale));
  store(op.y, y);
  store(op.rstd, rstd);
}

void check_rows(const RmsNormBwd& op) {
  const int64_t tokens = op.x.dim(0), width = op.x.dim(1);
  CHECK(op.groups > 0 && width % op.groups == 0, "rms_norm_bwd: {} channels in {} groups", width, op.groups);
  if (!op.seqs) return;
  for (const Seq& seq : op.seqs->seqs) {
    CHECK(seq.start >= 0 && seq.len >= 0 && (seq.start + seq.len) * op.rows_per_token <= tokens,
          "rms_norm_bwd: tokens {}+{} of {} rows", seq.start, seq.len, tokens);
  }
}

// In rows of x.
std::vector<Seq> sequences(const RmsNormBwd& op) {
  if (!op.seqs) return SeqMap::one(op.x.dim(0)).seqs;
  std::vector<Seq> list = op.seqs->seqs;
  for (Seq& seq : list) seq.start *= op.rows_per_token, seq.len *= op.rows_per_token;
  return list;
}

void bwd_hwy(Ctx& ctx, const RmsNormBwd& op, std::span<std::byte> workspace) {
  check_rows(op);
  rms_norm_bwd_hwy(ctx, op, workspace);
}

void bwd_ref(Ctx&, const RmsNormBwd& op, std::span<std::byte>) {
  check_rows(op);
  const int64_t tokens = op.x.dim(0), width = op.x.dim(1);
  const std::vector<double> dy = to_doubles(op.dy), x = to_doubles(op.x), z = to_doubles(op.z), w = to_doubles(op.w);
  std::vector<double> rstd = to_doubles(op.rstd), dx = to_doubles(op.dx), dz(dx.size()), y(dx.size());
  if (!op.rstd) {
    rstd.resize(static_cast<size_t>(tokens * op.groups));
    rms_norm_fwd_ref(tokens, width, op.groups, static_cast<double>(op.eps), x, z, w, y, rstd);
  }
  for (const Seq& seq : sequences(op)) {
    std::vector<double> dw(w.size());
    rms_norm_bwd_ref(seq.start, seq.start + seq.len, width, op.groups, dy, x, z, w, rstd, dx, dz, dw,
                     to_doubles(op.mean));
    accumulate(op.dw, dw);
  }
  store(op.dx, dx);
  store(op.dz, dz);
}

const char* hwy_supports(const RmsNormFwd& op) {
  if (!op.x.rows_contiguous() || !op.y.rows_contiguous() || (op.z && !op.z.rows_contiguous())) return "strided rows";
  if (op.w.dtype != DType::f32) return "weight is not F32";
  return nullptr;
}

const char* bwd_hwy_supports(const RmsNormBwd& op) {
  for (const View& v : {op.w, op.rstd, op.mean, View(op.dw)}) {
    if (v.dtype != DType::f32 || !v.rows_contiguous()) return "weight, its gradient or rstd is not a row of F32";
  }
  for (const View& v : {op.dy, op.x, op.z, View(op.dx), View(op.dz)}) {
    if (v.dtype != DType::f32 && v.dtype != DType::bf16) return "neither F32 nor BF16";
    if (!v.rows_contiguous()) return "strided rows";
  }
  return nullptr;
}

const char* cuda_supports(const RmsNormFwd& op) {
  if (op.x.dtype != DType::f32 || op.y.dtype != DType::f32 || op.z || op.scale || op.groups != 1)
    return "only plain F32 so far";
  return op.x.contiguous() && op.y.contiguous() ? nullptr : "strided";
}

}  // namespace

std::span<const Row<RmsNormFwd>> RmsNormFwd::rows() {
  static constexpr Row<RmsNormFwd> kRows[] = {
      {.name = "cuda",
       .numerics = "cuda",
       .supports = &cuda_supports,
       .run = kHasCuda ? &rms_norm_fwd_cuda : nullptr,
       .device = Device::cuda},
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .run = &rms_norm_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<RmsNormBwd>> RmsNormBwd::rows() {
  static constexpr Row<RmsNormBwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &bwd_hwy_supports,
       .workspace = &rms_norm_bwd_hwy_workspace,
       .run = &bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
