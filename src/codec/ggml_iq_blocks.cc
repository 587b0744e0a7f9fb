#include "codec/ggml_iq_blocks.h"

#include <bit>
#include <cstring>

#include "codec/ggml_grids.h"
#include "core/dtype.h"

namespace braid::ggml {
namespace {

using Byte = uint8_t;

template <class Num>
Num load(const Byte* p) {
  Num v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
float half(const Byte* p) { return to_float(load<F16>(p)); }
uint32_t u16(const Byte* p) { return load<uint16_t>(p); }
uint32_t nibble(const Byte* p, int i) { return p[i / 2] >> i % 2 * 4 & 15; }
float number(uint32_t v) { return static_cast<float>(v); }

constexpr float kIq2Levels[4] = {8, 25, 43, 0};  // code 3 is in no table
constexpr float kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};

// Seven signs are stored, the eighth makes their number even.
uint32_t eight_signs(uint32_t seven) { return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7; }

// 8 values of magnitudes in 2 bits.
void iq2(float step, uint32_t codes, uint32_t signs, float* y) {
  for (int i = 0; i < 8; ++i) {
    const float v = step * kIq2Levels[codes >> 2 * i & 3];
    y[i] = signs >> i & 1 ? -v : v;
  }
}

// 8 values of -1, 0 and 1, shifted by an eighth.
void iq1(float step, uint32_t codes, bool down, float* y) {
  for (int i = 0; i < 8; ++i)
    y[i] = step * (static_cast<float>(static_cast<int>(codes >> 2 * i & 3) - 1) + (down ? -0.125f : 0.125f));
}

}  // namespace

void iq1_s(const Byte* b, float* y) {
  const float d = half(b);
  const Byte *low = b + 2, *high = b + 34;
  for (int g = 0; g < 8; ++g) {
    const uint32_t h = u16(high + 2 * g);
    const float step = d * number(2 * (h >> 12 & 7) + 1);
    for (int l = 0; l < 4; ++l) iq1(step, kIq1[low[4 * g + l] | (h >> 3 * l & 7) << 8], h >> 15, y + 32 * g + 8 * l);
  }
}

void iq1_m(const Byte* b, float* y) {
  const Byte *high = b + 32, *scales = b + 48;
  uint32_t bits = 0;  // of the scale of the block: the highest four of each word of scales
  for (int i = 0; i < 4; ++i) bits |= (u16(scales + 2 * i) >> 12) << 4 * i;
  const float d = to_float(std::bit_cast<F16>(static_cast<uint16_t>(bits)));
  for (int k = 0; k < 32; ++k) {
    const uint32_t h = nibble(high, k), scale = u16(scales + k / 8 * 2) >> k / 2 % 4 * 3 & 7;
    iq1(d * number(2 * scale + 1), kIq1[b[k] | (h & 7) << 8], h & 8, y + 8 * k);
  }
}

void iq2_xxs(const Byte* b, float* y) {
  const float d = half(b);
  for (int g = 0; g < 8; ++g) {
    const Byte* codes = b + 2 + 8 * g;
    const auto rest = load<uint32_t>(codes + 4);
    const float step = d * (0.5f + number(rest >> 28)) * 0.25f;
    for (int l = 0; l < 4; ++l) iq2(step, kIq2Xxs[codes[l]], eight_signs(rest >> 7 * l & 127), y + 32 * g + 8 * l);
  }
}

void iq2_xs(const Byte* b, float* y) {
  const float d = half(b);
  for (int k = 0; k < 32; ++k) {
    const uint32_t code = u16(b + 2 + 2 * k);
    const float step = d * (0.5f + number(nibble(b + 66, k / 2))) * 0.25f;
    iq2(step, kIq2Xs[code & 511], eight_signs(code >> 9), y + 8 * k);
  }
}

void iq2_s(const Byte* b, float* y) {
  const float d = half(b);
  const Byte *low = b + 2, *signs = b + 34, *high = b + 66, *scales = b + 74;
  for (int k = 0; k < 32; ++k) {
    const float step = d * (0.5f + number(nibble(scales, k / 2))) * 0.25f;
    iq2(step, kIq2S[low[k] | (high[k / 4] >> k % 4 * 2 & 3u) << 8], signs[k], y + 8 * k);
  }
}

void iq3_xxs(const Byte* b, float* y) {
  const float d = half(b);
  for (int g = 0; g < 8; ++g) {
    const auto rest = load<uint32_t>(b + 66 + 4 * g);
    const float step = d * (0.5f + number(rest >> 28)) * 0.5f;
    for (int i = 0; i < 32; ++i) {
      const uint32_t code = kIq3Xxs[b[2 + 8 * g + i / 4]] >> i % 4 * 3 & 7;
      const float v = step * kIq3XxsLevels[code];
      y[32 * g + i] = eight_signs(rest >> i / 8 * 7 & 127) >> i % 8 & 1 ? -v : v;
    }
  }
}

void iq3_s(const Byte* b, float* y) {
  const float d = half(b);
  const Byte *low = b + 2, *high = b + 66, *signs = b + 74, *scales = b + 106;
  for (int i = 0; i < 256; ++i) {
    const int j = i / 4;
    const uint32_t code = kIq3S[low[j] | (high[j / 8] >> j % 8 & 1u) << 8] >> i % 4 * 3 & 7;
    const float v = d * number(1 + 2 * nibble(scales, i / 32)) * number(2 * code + 1);
    y[i] = signs[i / 8] >> i % 8 & 1 ? -v : v;
  }
}

}  // namespace braid::ggml
