#include "codec/nvfp4.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "codec/quant_codec.h"

namespace braid {
namespace {

constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// For every scale the 16 values of a block as BF16, exact, split into bytes: a shuffle looks up all codes of a block,
// with no multiplication. 8 KiB.
struct Nvfp4Tables {
  alignas(16) uint8_t low[256][16], high[256][16];
  Nvfp4Tables() {
    for (size_t scale = 0; scale < 256; ++scale) {
      for (int code = 0; code < 16; ++code) {
        const Bf16 v = to_bf16(e2m1_value(code) * to_float(F8E4M3{static_cast<uint8_t>(scale)}));
        low[scale][code] = static_cast<uint8_t>(v.bits);
        high[scale][code] = static_cast<uint8_t>(v.bits >> 8);
      }
    }
  }
};
const Nvfp4Tables& nvfp4_tables() {
  static const Nvfp4Tables tables;
  return tables;
}

// All 16 values of a block.
HWY_INLINE void decode_block(const Nvfp4Tables& tables, const uint8_t* codes, F8E4M3 scale, Bf16* values) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<uint8_t, 16> d;
  const hn::FixedTag<uint8_t, 8> half;
  const auto pairs = hn::ZeroExtendVector(d, hn::LoadU(half, codes));
  const auto index = hn::InterleaveLower(d, hn::And(pairs, hn::Set(d, 15)), hn::ShiftRight<4>(pairs));
  const auto low = hn::TableLookupBytes(hn::Load(d, tables.low[scale.bits]), index);
  const auto high = hn::TableLookupBytes(hn::Load(d, tables.high[scale.bits]), index);
  auto* out = reinterpret_cast<uint8_t*>(values);
  hn::StoreU(hn::InterleaveLower(d, low, high), d, out);
  hn::StoreU(hn::InterleaveUpper(d, low, high), d, out + 16);
}

template <class Num>
void decode(const Weight& w, int64_t r, int64_t begin, int64_t n, Num* values) {
  const uint8_t* codes = w.codes.as<uint8_t>(r) + begin / 2;
  const F8E4M3* scales = w.scales.as<F8E4M3>(r) + begin / kNvfp4Block;
  const Nvfp4Tables& tables = nvfp4_tables();
  for (int64_t i = 0; i < n; i += kNvfp4Block, codes += kNvfp4Block / 2, ++scales) {
    if constexpr (std::is_same_v<Num, Bf16>) {
      if (n - i >= kNvfp4Block) {
        decode_block(tables, codes, *scales, values + i);
        continue;
      }
    }
    Bf16 block[kNvfp4Block];
    decode_block(tables, codes, *scales, block);
    for (int64_t j = 0; j < std::min(kNvfp4Block, n - i); ++j) {
      if constexpr (std::is_same_v<Num, Bf16>) {
        values[i + j] = block[j];
      } else {
        values[i + j] = to_float(block[j]);
      }
    }
  }
}

// body(bits) for the scales from half to twice one.
template <class Body>
void for_octaves(int bits, const Body& body) {
  constexpr int kOctave = 8;  // E4M3 has eight values from one power of two to the next
  for (int other = std::max(1, bits - kOctave); other <= std::min(0x7e, bits + kOctave); ++other) body(other);
}

F8E4M3 scale_for(float amax, float steps, float global) {
  return to_f8e4m3(std::clamp(amax / (steps * global), 0x1p-9f, 448.0f));
}

float squared_error(std::span<const float> values, float scale) {
  float sum = 0;
  for (float v : values) {
    const float e = v - e2m1_value(e2m1_code(v / scale)) * scale;
    sum += e * e;
  }
  return sum;
}

F8E4M3 block_scale(std::span<const float> values, float global, ScaleSearch search) {
  float amax = 0;
  for (float v : values) amax = std::max(amax, std::fabs(v));
  F8E4M3 best = scale_for(amax, 6, global);
  if (search == ScaleSearch::max || amax == 0) return best;
  float least = squared_error(values, to_float(best) * global);
  const auto consider = [&](F8E4M3 scale) {
    const float error = squared_error(values, to_float(scale) * global);
    if (error < least) {
      least = error;
      best = scale;
    }
  };
  if (search == ScaleSearch::four_over_six) {
    consider(scale_for(amax, 4, global));
    return best;
  }
  for_octaves(best.bits, [&](int bits) { consider(F8E4M3{static_cast<uint8_t>(bits)}); });
  return best;
}

// The quotient of the smallest magnitudes is 0, too: their codes are 0 under any scale.
float positive(float quotient) { return quotient > 0 ? quotient : 1.0f; }

// The functions of QuantCodec.
void encode(const QuantScaling& s, std::span<const float> row, std::byte* codes, std::byte* scales) {
  encode_nvfp4_row(row, s.global, reinterpret_cast<uint8_t*>(codes), reinterpret_cast<F8E4M3*>(scales), s.search);
}

void encode_with(const QuantScaling& s, std::span<const float> row, const std::byte* scales, std::byte* codes) {
  for (size_t i = 0; i < row.size(); i += 2) {
    const float scale = to_float(F8E4M3{static_cast<uint8_t>(scales[i / kNvfp4Block])}) * s.global;
    codes[i / 2] = static_cast<std::byte>(e2m1_code(row[i] / scale) | e2m1_code(row[i + 1] / scale) << 4);
  }
}

void decode_stored(const QuantScaling& s, const std::byte* codes, const std::byte* scales, std::span<float> row) {
  const int64_t cols = std::ssize(row);
  const Weight one{.rows = 1,
                   .cols = cols,
                   .spec = kNvfp4,
                   .codes = View(codes, DType::u8, {1, cols / 2}),
                   .scales = View(scales, DType::f8_e4m3, {1, cols / kNvfp4Block})};
  decode(one, 0, 0, cols, row.data());
  for (float& v : row) v *= s.global;
}

// As decode: the code times the scale is exact, and `global` rounds once.
float rounded(const QuantScaling& s, float value, uint16_t scale) {
  const float stored = to_float(F8E4M3{static_cast<uint8_t>(scale)});
  return e2m1_value(e2m1_code(value / (stored * s.global))) * stored * s.global;
}

void candidates(const QuantScaling& s, std::span<const float> block, uint16_t first, const Candidate& body) {
  if (s.search == ScaleSearch::four_over_six) return body(block_scale(block, s.global, s.search).bits);
  for_octaves(first, [&](int bits) { body(static_cast<uint16_t>(bits)); });
}

}  // namespace

QuantCodec nvfp4_quant_codec() {
  return {.name = "nvfp4",
          .block = kNvfp4Block,
          .code_bytes = kNvfp4Block / 2,
          .scale_bytes = 1,
          .spec = kNvfp4,
          .parts = {{.suffix = "", .dtype = DType::u8, .each = kNvfp4Block / 2},
                    {.suffix = "_scale", .dtype = DType::f8_e4m3, .each = 1},
                    {.suffix = "_scale_2", .dtype = DType::f32}},
          .global = &nvfp4_global,
          .encode = &encode,
          .encode_with = &encode_with,
          .decode = &decode_stored,
          .rounded = &rounded,
          .candidates = &candidates};
}

float e2m1_value(int code) { return code & 8 ? -kE2m1[code & 7] : kE2m1[code & 7]; }

int e2m1_code(float value) {
  // One step for every threshold that is passed; on a threshold the even one of the two codes is used. No branches: a
  // loop over the thresholds is mispredicted for every value.
  const float m = std::fabs(value);
  const int code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
  return std::signbit(value) ? code | 8 : code;
}

void decode_nvfp4(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values) {
  decode(w, r, begin, n, values);
}
void decode_nvfp4(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values) {
  decode(w, r, begin, n, values);
}

float nvfp4_global(float amax, ScaleSearch search) {
  return positive(amax / (6 * (search == ScaleSearch::four_over_six ? 256.0f : 448.0f)));
}

void encode_nvfp4_row(std::span<const float> values, float global, uint8_t* codes, F8E4M3* scales, ScaleSearch search) {
  for (size_t block = 0; block < values.size() / kNvfp4Block; ++block) {
    const auto part = values.subspan(block * kNvfp4Block, kNvfp4Block);
    scales[block] = block_scale(part, global, search);
    const float scale = to_float(scales[block]) * global;
    for (size_t i = 0; i < part.size(); i += 2) {
      codes[(block * kNvfp4Block + i) / 2] =
          static_cast<uint8_t>(e2m1_code(part[i] / scale) | e2m1_code(part[i + 1] / scale) << 4);
    }
  }
}

}  // namespace braid
