// Sums of BF16 features over dense tiles (spmm_tiles.h): windows of 16 rows, whose factors are written once into tiles
// and multiplied by 64 channels at a time of the sources that they name, each of which is read once for all its edges.
// A factor is split into two BF16 numbers, which leaves out about 2^-17 of it; of factors that are BF16 numbers, as
// ones are, one is enough. A tile multiplies what has no edge by zero, so where a sum is not finite the rows of its
// window are computed by `sr`: NaN and infinity reach no other row, but a window's rows then have the bits of `sr`.
// Numbers below 1.2e-38 count as zero.
#include <algorithm>
#include <cmath>
#include <memory>

#include "core/dtype.h"
#include "kernels/spmm/spmm_rows.h"
#include "kernels/spmm/spmm_tiles.h"
#include "kernels/spmm/spmm_tiles_code.h"
#include "math/row_split.h"
#include "math/tile_soft.h"

namespace braid::spmm_tiles {
namespace {

tiles::SoftTiles& soft() {
  thread_local tiles::SoftTiles tiles;
  return tiles;
}

template <int kGroups>
void interleave(const Products& p, const int32_t* source, const Ahead&) {
  for (int64_t k = 0; k < kSources; ++k) {
    const uint16_t* x = p.x + source[k] * p.x_stride;
    for (int64_t c = 0; c < kGroups * kGroup; ++c) {
      const int64_t tile = c / kGroup * 2 + c / 4 % 2, column = c % kGroup / 8 * 4 + c % 4;
      p.interleaved[tile * 2 * kTile + k / 2 * 32 + 2 * column + k % 2] = x[c];
    }
  }
}

}  // namespace
}  // namespace braid::spmm_tiles

#define BRAID_TILE_FN
#define BRAID_TILE_ZERO(t) soft().zero(t)
#define BRAID_TILE_LOAD(t, p, stride) soft().load(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) soft().store(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) soft().dot_bf16(c, a, b)
#include "kernels/spmm/spmm_tiles_amx-inl.h"

namespace braid::spmm_tiles {
namespace {

void nothing() {}

bool soft_factors(const Factors& f) {
  bool left = false;
  std::fill_n(f.out, f.steps * kStep, uint16_t{0});
  for (int64_t k = 0; k < f.steps * kRows; ++k) {
    for (int64_t c = 0; c < kSources; ++c) {
      if ((f.mask[k] >> c & 1) == 0) continue;
      const int64_t e = f.at[k % kRows]++;
      float v = f.edge ? f.edge[f.order ? f.order[e] : e] : 1;
      if (f.scale) v *= f.scale[f.source[e]];
      const Bf16 near = to_bf16(v), rest = to_bf16(v - to_float(near));
      uint16_t* out = f.out + k / kRows * kStep + k % kRows * kSources + c;
      out[0] = near.bits;
      out[kPlane] = rest.bits;
      left = left || (rest.bits & 0x7fff) != 0;
    }
  }
  return left;
}

bool soft_put(const Put& p) {
  bool finite = true;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.groups * kGroup; ++c) {
      const int64_t tile = c / kGroup * 2 + c / 4 % 2, column = c % kGroup / 8 * 4 + c % 4, channel = p.channel + c;
      float y = p.sums[tile * kTile + r * 16 + column];
      finite = finite && std::isfinite(y);
      if (p.own) y *= p.own->share[r];
      for (int k = 0; k < 2 && p.own; ++k) {
        if (p.own->x[k][r]) y = std::fma(p.own->factor[k][r], to_float(Bf16{p.own->x[k][r][channel]}), y);
      }
      if (p.y_bf16) {
        p.y_bf16[r * p.y_stride + channel] = to_bf16(y).bits;
      } else {
        p.y[r * p.y_stride + channel] = y;
      }
    }
  }
  return finite;
}

constexpr int64_t kStepsMost = 32;    // whose factors are in scratch at a time: 64 KiB
constexpr int64_t kCached = 1 << 20;  // bytes of y; beyond, it is written past the caches
constexpr int64_t kAlign = 64;

// Scratch of a thread.
struct Scratch {
  uint16_t *factors, *interleaved;
  float *sums, *long_sums;  // of one block of channels; of all, where a window has more steps than scratch

  static int64_t bytes(int64_t width) {
    return kStepsMost * kStep * 2 + 4 * 2 * kTile * 2 + 4 * kTile * 4 + width * kRows * 4;
  }
  explicit Scratch(std::byte* at)
      : factors(reinterpret_cast<uint16_t*>(at)),
        interleaved(factors + kStepsMost * kStep),
        sums(reinterpret_cast<float*>(interleaved + 4 * 2 * kTile)),
        long_sums(sums + 4 * kTile) {}
};

class Windows {
 public:
  Windows(const Code& code, const SpmmFwd& op, const Scratch& scratch)
      : code_(code),
        op_(op),
        scratch_(scratch),
        width_(op.y.dim(1)),
        window_(op.tiles->window.as<int32_t>()),
        source_(op.tiles->source.as<int32_t>()),
        mask_(reinterpret_cast<const uint32_t*>(op.tiles->mask.as<int32_t>())),
        last_(source_ + kSources * (op.tiles->source.dim(0) - 1)),
        plain_(op.reduce == Reduce::sum && !op.self && op.own == 0) {}

  void run(int64_t begin, int64_t end) {
    code_.begin();
    for (int64_t w = begin; w < end; ++w) {
      if (window_[w] < window_[w + 1] && sum(w)) continue;
      code_.end();
      for (int64_t i = kRows * w; i < kRows * w + rows_of(w); ++i) spmm_one_row(op_, i);
      code_.begin();
    }
    code_.end();
  }

 private:
  int64_t rows_of(int64_t w) const { return std::min(kRows, op_.y.dim(0) - kRows * w); }
  const uint16_t* x(int64_t row) const { return reinterpret_cast<const uint16_t*>(op_.x.as<Bf16>(row)); }

  // Every member of a row is assigned, so that none is cleared beforehand (docs/internals/cpu.md).
  void find_own_terms(int64_t w) {
    const auto* rowptr = op_.rowptr.as<int64_t>();
    for (int64_t r = 0; r < rows_of(w); ++r) {
      const int64_t i = kRows * w + r, self = i - op_.self_row;
      const bool has_self = op_.self && self >= 0 && self < op_.self.dim(0), has_own = op_.own != 0 && i < op_.x.dim(0);
      const int64_t degree = rowptr[i + 1] - rowptr[i];
      own_.share[r] = op_.reduce == Reduce::mean && degree > 0 ? 1 / static_cast<float>(degree) : 1;
      own_.x[0][r] = has_self ? x(op_.self_source + self) : nullptr;
      own_.factor[0][r] = has_self ? op_.self.as<float>()[self] : 0;
      own_.x[1][r] = has_own ? x(i) : nullptr;
      own_.factor[1][r] = op_.own;
    }
  }

  // Whether all sums of the window are finite.
  bool sum(int64_t w) {
    const int64_t first = window_[w], end = window_[w + 1];
    const auto* rowptr = op_.rowptr.as<int64_t>() + kRows * w;
    int64_t at[kRows];
    for (int64_t r = 0; r < kRows; ++r) at[r] = rowptr[std::min(r, rows_of(w))];  // rows beyond the last have no edges
    if (!plain_) find_own_terms(w);
    bool finite = true;
    for (int64_t s = first; s < end; s += kStepsMost) {
      const int64_t steps = std::min(kStepsMost, end - s);
      const bool remainder = code_.factors({.mask = mask_ + kRows * s,
                                            .steps = steps,
                                            .edge = op_.edge ? op_.edge.as<float>() : nullptr,
                                            .scale = op_.x_scale ? op_.x_scale.as<float>() : nullptr,
                                            .order = op_.order ? op_.order.as<int32_t>() : nullptr,
                                            .source = op_.col.as<int32_t>(),
                                            .at = at,
                                            .out = scratch_.factors});
      const bool whole = steps == end - first;
      for (int64_t c = 0, n = 0; c < width_; c += n) {
        n = std::min(2 * kGroup, width_ - c);
        float* sums = whole ? scratch_.sums : scratch_.long_sums + kRows * c;
        const bool more = c + n < width_;  // the next block reads the same sources
        code_.products({.source = source_ + kSources * s,
                        .last = last_,
                        .steps = steps,
                        .x = x(0) + c,
                        .x_after = x(0) + (more ? c + n : 0),
                        .source_after = source_ + kSources * (more ? s : s + steps),
                        .x_stride = op_.x.stride(0),
                        .factors = scratch_.factors,
                        .remainder = remainder,
                        .wide = n > kGroup,
                        .add = s > first,
                        .interleaved = scratch_.interleaved,
                        .sums = sums});
        if (s + steps == end) finite = put(w, c, n, sums) && finite;
      }
    }
    return finite;
  }

  bool put(int64_t w, int64_t c, int64_t n, const float* sums) const {
    const MutView& y = op_.y;
    const bool narrow = y.dtype == DType::bf16;
    const auto row = reinterpret_cast<uintptr_t>(narrow ? static_cast<void*>(y.as<Bf16>(kRows * w))
                                                        : static_cast<void*>(y.as<float>(kRows * w)));
    const bool aligned = row % kAlign == 0 && y.stride(0) * size_of(y.dtype) % kAlign == 0;
    return code_.put({.sums = sums,
                      .groups = n / kGroup,
                      .rows = rows_of(w),
                      .channel = c,
                      .y = narrow ? nullptr : y.as<float>(kRows * w),
                      .y_bf16 = narrow ? reinterpret_cast<uint16_t*>(y.as<Bf16>(kRows * w)) : nullptr,
                      .y_stride = y.stride(0),
                      .past_caches = aligned && y.count() * size_of(y.dtype) > kCached,
                      .own = plain_ ? nullptr : &own_});
  }

  const Code& code_;
  const SpmmFwd& op_;
  const Scratch scratch_;
  const int64_t width_;
  const int32_t *window_, *source_;
  const uint32_t* mask_;
  const int32_t* last_;
  const bool plain_;
  OwnTerms own_;
};

}  // namespace

const Code kSoftCode = {&nothing, &nothing, &soft_factors, &products, &soft_put};

}  // namespace braid::spmm_tiles

namespace braid {

int64_t spmm_tiles_workspace(const SpmmFwd& op, int threads) {
  return threads * spmm_tiles::Scratch::bytes(op.y.dim(1)) + spmm_tiles::kAlign;
}

// Every thread has windows of about as many edges; where they begin changes no bit.
void spmm_tiles_with(const spmm_tiles::Code& code, Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace) {
  check_spmm(op);
  const int64_t rows = op.y.dim(0), width = op.y.dim(1), windows = op.tiles->window.dim(0) - 1;
  const auto* rowptr = op.rowptr.as<int64_t>();
  void* space = workspace.data();
  size_t left = workspace.size();
  auto* const aligned = static_cast<std::byte*>(std::align(spmm_tiles::kAlign, 1, space, left));
  const int team = sys::team_for(ctx.threads, op.flops());
  sys::parallel(team, [&](int part, int parts) {
    const auto window_of = [&](int64_t task) {
      return task == parts ? windows : first_row_of(rowptr, rows, task, parts) / SpmmTileViews::kRows;
    };
    const spmm_tiles::Scratch scratch(aligned + part * spmm_tiles::Scratch::bytes(width));
    spmm_tiles::Windows(code, op, scratch).run(window_of(part), window_of(part + 1));
  });
}

void spmm_fwd_tiles(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace) {
  spmm_tiles_with(spmm_tiles::kAmxCode, ctx, op, workspace);
}

}  // namespace braid
