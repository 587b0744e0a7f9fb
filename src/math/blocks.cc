#include "math/blocks.h"

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "math/codes_dot.h"
#include "math/ggml_blocks.h"

namespace braid {
namespace {

constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

struct F8Table {
  std::array<float, 256> value{};
  F8Table() {
    for (size_t i = 0; i < value.size(); ++i) value[i] = to_float(F8E4M3{static_cast<uint8_t>(i)});
  }
};
const std::array<float, 256>& f8_values() {
  static const F8Table table;
  return table.value;
}

inline void put(float v, float& out) { out = v; }
inline void put(float v, Bf16& out) { out = to_bf16(v); }

// For every scale the 16 values of a block as BF16, exact, split into bytes: a shuffle looks up all codes of a block,
// with no multiplication. 8 KiB.
struct Nvfp4Tables {
  alignas(16) uint8_t low[256][16], high[256][16];
  Nvfp4Tables() {
    for (size_t scale = 0; scale < 256; ++scale) {
      for (int code = 0; code < 16; ++code) {
        const Bf16 v = to_bf16(e2m1_value(code) * f8_values()[scale]);
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
void decode_nvfp4(const Weight& w, int64_t r, int64_t begin, int64_t n, Num* values) {
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
    for (int64_t j = 0; j < std::min(kNvfp4Block, n - i); ++j) put(to_float(block[j]), values[i + j]);
  }
}

// Whole blocks at a time, through a buffer if they are cut or the output is not FP32.
template <class Num>
void decode_blocks(const Weight& w, int64_t r, int64_t begin, int64_t n, Num* values) {
  constexpr int64_t kBuffer = 512;  // values: two of the longest blocks
  alignas(64) float buffer[kBuffer];
  const int64_t block = w.spec.block, bytes = w.codes.dim(1) / (w.cols / block);
  if (codes::decode(w.spec.ggml, w.codes.as<uint8_t>(r), begin, n, values)) return;
  const auto* row = reinterpret_cast<const std::byte*>(w.codes.as<uint8_t>(r));
  for (int64_t i = 0; i < n;) {
    const int64_t first = (begin + i) / block, skip = (begin + i) % block;
    const int64_t blocks = std::min(kBuffer / block, (skip + n - i + block - 1) / block);
    decode_ggml(w.spec.ggml, row + first * bytes, {buffer, static_cast<size_t>(blocks * block)});
    const int64_t count = std::min(n - i, blocks * block - skip);
    for (int64_t j = 0; j < count; ++j) put(buffer[skip + j], values[i + j]);
    i += count;
  }
}

template <class Num>
void decode_any(const Weight& w, int64_t r, int64_t begin, int64_t n, Num* values) {
  switch (w.spec.format) {
    case Format::f32:
      for (int64_t i = 0; i < n; ++i) put(w.codes.as<float>(r)[begin + i], values[i]);
      return;
    case Format::f16:
      for (int64_t i = 0; i < n; ++i) put(to_float(w.codes.as<F16>(r)[begin + i]), values[i]);
      return;
    case Format::bf16:
      for (int64_t i = 0; i < n; ++i) put(to_float(w.codes.as<Bf16>(r)[begin + i]), values[i]);
      return;
    case Format::f8_e4m3:
      for (int64_t i = 0; i < n; ++i) put(f8_values()[w.codes.as<F8E4M3>(r)[begin + i].bits], values[i]);
      return;
    case Format::nvfp4:
      return decode_nvfp4(w, r, begin, n, values);
    case Format::ggml:
      return decode_blocks(w, r, begin, n, values);
  }
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
  constexpr int kOctave = 8;  // E4M3 has eight values from one power of two to the next
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
  const int first = std::max(1, best.bits - kOctave), last = std::min(0x7e, best.bits + kOctave);
  for (int bits = first; bits <= last; ++bits) consider(F8E4M3{static_cast<uint8_t>(bits)});
  return best;
}

}  // namespace

float e2m1_value(int code) { return code & 8 ? -kE2m1[code & 7] : kE2m1[code & 7]; }

int e2m1_code(float value) {
  // One step for every threshold that is passed; on a threshold the even one of the two codes is used. No branches: a
  // loop over the thresholds is mispredicted for every value.
  const float m = std::fabs(value);
  const int code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
  return std::signbit(value) ? code | 8 : code;
}

void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values) {
  decode_any(w, r, begin, n, values);
}
void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values) {
  if (w.spec.format == Format::bf16) {
    std::memcpy(values, w.codes.as<Bf16>(r) + begin, static_cast<size_t>(n) * sizeof(Bf16));
  } else {
    decode_any(w, r, begin, n, values);
  }
}

std::vector<double> decode(const Weight& w) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  std::vector<double> out;
  out.reserve(static_cast<size_t>(w.rows * w.cols));
  for (int64_t r = 0; r < w.rows; ++r) {
    decode_row(w, r, 0, w.cols, row.data());
    for (float v : row) out.push_back(static_cast<double>(v) * static_cast<double>(w.global));
  }
  return out;
}

// The quotient of the smallest magnitudes is 0, too: their codes are 0 under any scale.
static float positive(float quotient) { return quotient > 0 ? quotient : 1.0f; }

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

float fp8_global(float amax) { return positive(amax / 448); }

void encode_fp8_row(std::span<const float> values, float global, F8E4M3* codes) {
  for (size_t i = 0; i < values.size(); ++i) codes[i] = to_f8e4m3(values[i] / global);
}

}  // namespace braid
