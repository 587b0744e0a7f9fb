#include "codec/compressed_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "codec/nvfp4.h"
#include "core/dtype.h"
#include "sys/check.h"

namespace braid {
namespace {

using Values = std::span<const float, kCompressedGroup>;
using Codes = std::array<uint8_t, kCompressedGroup>;

float number(int v) { return static_cast<float>(v); }

// A group encoded with one scale.
struct Fit {
  uint16_t scale = 0;  // as stored
  Codes codes{};
  float error = 0;  // sum of squares
};

// The first value of the largest magnitude, with its sign.
float peak(Values x) {
  return *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

// One value with a scale, as a code from 0 and as the number that it stands for.
struct IntCode {
  float middle, last, step, inverse;
  IntCode(int bits, Bf16 scale)
      : middle(number(1 << (bits - 1))),
        last(2 * middle - 1),
        step(to_float(scale)),
        inverse(step != 0 ? 1 / step : 0.0f) {}
  float code(float v) const { return std::clamp(std::nearbyint(v * inverse) + middle, 0.0f, last); }
  float value(float code) const { return (code - middle) * step; }
};

// With the scale rounded to half precision, then to BF16, so that it is exact in both.
Fit fit_int(int bits, Values x, float scale) {
  const Bf16 stored = to_bf16(to_float(to_f16(scale)));
  const IntCode with(bits, stored);
  Fit fit{.scale = stored.bits};
  for (size_t i = 0; i < x.size(); ++i) {
    const float code = with.code(x[i]);
    fit.codes[i] = static_cast<uint8_t>(code);
    const float error = x[i] - with.value(code);
    fit.error += error * error;
  }
  return fit;
}

Fit encode_int(int bits, Values x, ScaleSearch search) {
  const int middle = 1 << (bits - 1);
  // The code range has one more value below zero, used by the peak.
  const float first = bits == 8 ? std::fabs(peak(x)) / 127 : peak(x) / number(-middle);
  Fit best = fit_int(bits, x, first);
  if (search == ScaleSearch::max || first == 0) return best;
  for (const float sign : {1.0f, -1.0f}) {
    for (int percent = 60; percent <= 116; percent += 4) {
      const Fit other = fit_int(bits, x, sign * first * number(percent) / 100);
      if (other.error < best.error) best = other;
    }
  }
  return best;
}

float mxfp4_scale(uint16_t stored) { return std::ldexp(1.0f, static_cast<int>(stored) - 127); }

Fit fit_mxfp4(Values x, int exponent) {
  Fit fit{.scale = static_cast<uint16_t>(exponent)};
  const float scale = mxfp4_scale(fit.scale);
  for (size_t i = 0; i < x.size(); ++i) {
    const int code = e2m1_code(x[i] / scale);
    fit.codes[i] = static_cast<uint8_t>(code);
    const float error = x[i] - e2m1_value(code) * scale;
    fit.error += error * error;
  }
  return fit;
}

Fit encode_mxfp4(Values x, ScaleSearch search) {
  const float amax = std::fabs(peak(x));
  if (amax == 0) return {};
  const int first = std::clamp(std::ilogb(amax) - 2 + 127, 0, 254);
  Fit best = fit_mxfp4(x, first);
  if (search == ScaleSearch::max) return best;
  for (const int exponent : {first - 1, first + 1}) {
    if (exponent < 0 || exponent > 254) continue;
    const Fit other = fit_mxfp4(x, exponent);
    if (other.error < best.error) best = other;
  }
  return best;
}

// A stream of bits, little-endian; a group's ends with a byte.
void pack(const Codes& codes, int bits, uint8_t* out) {
  uint32_t held = 0;
  int n = 0;
  for (const uint8_t code : codes) {
    held |= static_cast<uint32_t>(code) << n;
    for (n += bits; n >= 8; n -= 8, held >>= 8) *out++ = static_cast<uint8_t>(held);
  }
}
void unpack(const uint8_t* in, int bits, Codes& codes) {
  uint32_t held = 0;
  int n = 0;
  for (uint8_t& code : codes) {
    for (; n < bits; n += 8) held |= static_cast<uint32_t>(*in++) << n;
    code = static_cast<uint8_t>(held & ((1u << bits) - 1));
    held >>= bits;
    n -= bits;
  }
}

// 32 codes of four bits, two neighbours a byte, to bytes of one and the sixteenth after it. By words: models of these
// formats are repacked before their first token.
void halves_of_fours(const uint8_t* in, uint8_t* out) {
  constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0f;
  // The low halves of bytes 0 to 3 of `word` become bytes 0, 2, 4, 6 of the result, the high halves those between.
  const auto spread = [](uint64_t word) {
    word = (word | word << 16) & 0x0000ffff0000ffff;
    word = (word | word << 8) & 0x00ff00ff00ff00ff;
    return (word | word << 4) & kLow;
  };
  uint32_t words[4];
  std::memcpy(words, in, sizeof words);
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t both = spread(words[i]) | spread(words[i + 2]) << 4;
    std::memcpy(out + 8 * i, &both, sizeof both);
  }
}

}  // namespace

void encode_compressed(CompressedType type, std::span<const float> values, ScaleSearch search, std::byte* codes,
                       std::byte* scales) {
  CHECK(std::ssize(values) % kCompressedGroup == 0, "{} values", values.size());
  for (; !values.empty(); values = values.subspan(kCompressedGroup)) {
    const Values group = values.first<kCompressedGroup>();
    const Fit fit =
        type == CompressedType::mxfp4 ? encode_mxfp4(group, search) : encode_int(bits_of(type), group, search);
    pack(fit.codes, bits_of(type), reinterpret_cast<uint8_t*>(codes));
    std::memcpy(scales, &fit.scale, static_cast<size_t>(scale_bytes(type)));
    codes += code_bytes(type);
    scales += scale_bytes(type);
  }
}

void encode_compressed_with(CompressedType type, std::span<const float> values, const std::byte* scales,
                            std::byte* codes) {
  CHECK(std::ssize(values) % kCompressedGroup == 0, "{} values", values.size());
  Codes group;
  for (; !values.empty(); values = values.subspan(kCompressedGroup)) {
    uint16_t scale = 0;
    std::memcpy(&scale, scales, static_cast<size_t>(scale_bytes(type)));
    const float e8m0 = type == CompressedType::mxfp4 ? mxfp4_scale(scale) : 0;
    const IntCode with(bits_of(type), Bf16{scale});
    for (size_t i = 0; i < group.size(); ++i)
      group[i] = static_cast<uint8_t>(type == CompressedType::mxfp4 ? number(e2m1_code(values[i] / e8m0))
                                                                    : with.code(values[i]));
    pack(group, bits_of(type), reinterpret_cast<uint8_t*>(codes));
    codes += code_bytes(type);
    scales += scale_bytes(type);
  }
}

float round_compressed(CompressedType type, float value, uint16_t scale) {
  if (type == CompressedType::mxfp4) {
    const float e8m0 = mxfp4_scale(scale);
    return e2m1_value(e2m1_code(value / e8m0)) * e8m0;
  }
  const IntCode with(bits_of(type), Bf16{scale});
  return with.value(with.code(value));
}

GgmlType blocks_for(CompressedType type) {
  if (type == CompressedType::mxfp4) return GgmlType::mxfp4;
  return type == CompressedType::int8 ? GgmlType::q8_0 : GgmlType::q4_0;
}

void compressed_to_blocks(CompressedType type, const std::byte* codes, const std::byte* scales, int64_t groups,
                          std::byte* blocks) {
  const auto scale_size = static_cast<size_t>(scale_bytes(type));
  const size_t bytes = type == CompressedType::int8 ? 32 : 16;
  const auto* in = reinterpret_cast<const uint8_t*>(codes);
  for (int64_t g = 0; g < groups; ++g) {
    std::memcpy(blocks, scales, scale_size);
    auto* out = reinterpret_cast<uint8_t*>(blocks) + scale_size;
    switch (type) {
      case CompressedType::int8:
        for (size_t i = 0; i < bytes; ++i) out[i] = in[i] ^ 0x80;  // minus 128
        break;
      case CompressedType::int3: {
        Codes group;
        unpack(in, bits_of(type), group);
        for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>((group[i] + 4) | (group[i + 16] + 4) << 4);
        break;
      }
      default:
        halves_of_fours(in, out);
    }
    blocks += scale_size + bytes;
    in += code_bytes(type);
    scales += scale_bytes(type);
  }
}

void stored_to_blocks(CompressedType type, const std::byte* codes, const std::byte* scales, int64_t groups,
                      std::byte* blocks) {
  std::vector<std::byte> converted(scales, scales + groups * scale_bytes(type));
  if (type != CompressedType::mxfp4) {
    auto* values = reinterpret_cast<uint16_t*>(converted.data());
    for (int64_t g = 0; g < groups; ++g) values[g] = to_f16(to_float(Bf16{values[g]})).bits;
  }
  compressed_to_blocks(type, codes, converted.data(), groups, blocks);
}

}  // namespace braid
