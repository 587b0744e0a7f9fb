#include "codec/codec.h"

#include <cstring>
#include <type_traits>

#include "codec/fp8.h"
#include "codec/ggml_blocks.h"
#include "codec/nvfp4.h"

namespace braid {
namespace {

inline void put(float v, float& out) { out = v; }
inline void put(float v, Bf16& out) { out = to_bf16(v); }
inline float number(float v) { return v; }
template <class T>
float number(T v) {
  return to_float(v);
}

template <class T, class Num>
void decode_dense(const Weight& w, int64_t r, int64_t begin, int64_t n, Num* values) {
  const T* codes = w.codes.as<T>(r) + begin;
  if constexpr (std::is_same_v<T, Num>) {
    std::memcpy(values, codes, static_cast<size_t>(n) * sizeof(Num));
  } else {
    for (int64_t i = 0; i < n; ++i) put(number(codes[i]), values[i]);
  }
}

template <class T>
constexpr Codec dense_codec() {
  return {.dense = true,
          .in_place = !std::is_same_v<T, F16>,
          .exact_in_bf16 = std::is_same_v<T, Bf16>,
          .f32 = &decode_dense<T, float>,
          .bf16 = &decode_dense<T, Bf16>};
}

constexpr Codec kF32 = dense_codec<float>(), kF16 = dense_codec<F16>(), kBf16 = dense_codec<Bf16>(),
                kFp8{.exact_in_bf16 = true, .f32 = &decode_fp8, .bf16 = &decode_fp8},
                kNvfp4Codec{.exact_in_bf16 = true, .f32 = &decode_nvfp4, .bf16 = &decode_nvfp4},
                kGgml{.f32 = &decode_ggml_row, .bf16 = &decode_ggml_row};

// In the order of Format.
constexpr const Codec* kCodecs[] = {&kF32, &kF16, &kBf16, &kFp8, &kNvfp4Codec, &kGgml};

}  // namespace

const Codec& codec_of(Format format) { return *kCodecs[static_cast<size_t>(format)]; }

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

}  // namespace braid
