// tile_amx-inl.h over software tiles: for tests, and as the definition of what the instructions compute.
#include "math/tile_soft.h"

#include <algorithm>
#include <cmath>

#include "codec/codec.h"
#include "codec/nvfp4.h"
#include "core/dtype.h"
#include "math/tile_strip.h"

namespace braid::tiles {

const Walk& walk_soft();

namespace {

constexpr int64_t kUnit = 128;  // values in four steps of NVFP4

SoftTiles& soft() {
  thread_local SoftTiles tiles;
  return tiles;
}

}  // namespace
}  // namespace braid::tiles

#define BRAID_TILE_FN
#define BRAID_TILE_CONFIGURE(first, second) soft().configure(first, second)
#define BRAID_TILE_ZERO(t) soft().zero(t)
#define BRAID_TILE_LOAD(t, p, stride) soft().load(t, p, stride)
#define BRAID_TILE_STORE(t, p, stride) soft().store(t, p, stride)
#define BRAID_TILE_DOT(c, a, b) soft().dot_bf16(c, a, b)
#include "math/tile_amx-inl.h"

namespace braid::tiles {
namespace {

uint16_t tile_value(float v) { return to_bf16(std::ldexp(v, -112)).bits; }
float f8(uint8_t code) { return to_float(F8E4M3{code}); }

// Where value k of a row is.
int64_t place(Order order, int64_t k) {
  if (order == Order::plain) return k;
  const int64_t in_block = k % 16, b = k % kUnit / 16;
  const int64_t i = order == Order::nvfp4 ? in_block % 4 : in_block % 2 * 2 + in_block / 8;
  const int64_t j = order == Order::nvfp4 ? in_block / 4 : in_block % 8 / 2;
  return k / kUnit * kUnit + 32 * i + 4 * b + j;
}

float nvfp4(const Decode& d, int64_t r, int64_t k) {
  const uint8_t* codes = d.codes + r * d.codes_stride;
  if (d.order == Order::nvfp4)
    return e2m1_value(k % 2 ? codes[k / 2] >> 4 : codes[k / 2] & 15) * f8(d.scales[r * d.scales_stride + k / 16]);
  codes += k / 64 * 36;
  const int scale = codes[k % 64 / 16] & 0x7f, pair = codes[4 + k % 64 / 16 * 8 + k % 8];
  return e2m1_value(k % 16 / 8 ? pair >> 4 : pair & 15) * (scale == 0x7f ? 0 : f8(static_cast<uint8_t>(scale)));
}

void decode(const Decode& d) {
  for (int64_t r = 0; r < d.rows; ++r) {
    for (int64_t k = 0; k < (d.values + kUnit - 1) / kUnit * kUnit; ++k) {
      const int64_t at = place(d.order, k);
      d.out[at / 32 * 1024 + r * 32 + at % 32] = k < d.values ? tile_value(nvfp4(d, r, k)) : uint16_t{0};
    }
  }
}

void fp8_row(const uint8_t* codes, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = (codes[i] & 0x7f) == 0x7f ? uint16_t{0x7fc0} : tile_value(f8(codes[i]));
}

void pack(const Pack& p) {
  const int64_t step = p.order == Order::plain ? 32 : kUnit, padded = (p.depth + step - 1) / step * step;
  for (int64_t k = 0; k < padded; ++k) {
    const int64_t at = place(p.order, k);
    for (int64_t r = 0; r < p.rows; ++r) {
      Bf16 v{k < p.depth ? p.row[r][k] : uint16_t{0}};
      if (p.codes) v = to_bf16(std::ldexp(to_float(v), 64));
      p.out[(at / 2 * p.rows + r) * 2 + at % 2] = v.bits;
    }
  }
}

void result(const Result& r) {
  for (int64_t m = 0; m < r.rows; ++m) {
    for (int64_t n = 0; n < r.cols; ++n) {
      const float v = r.sums[m / 16 * 512 + n * 16 + m % 16] * r.factor;
      if (r.bf16) {
        r.bf16[m * r.y_stride + n] = to_bf16(v).bits;
      } else {
        r.f32[m * r.y_stride + n] = v;
      }
    }
  }
}

void strip_soft(const Strip& s) { strip(s); }
void release() {}

}  // namespace

const Walk& walk_soft() {
  static constexpr Walk kWalk{&strip_soft, &release, &decode, &fp8_row, &pack, &result};
  return kWalk;
}

}  // namespace braid::tiles
