// The dots of codes_dot.h for AVX2, with AVX-VNNI if the CPU has it: bit-identical to the rows for AVX-512, whose 16
// sums are two vectors here, one for each half of a step. Without VNNI codes are widened to 16 bits, and x is not split
// into bytes.
//   https://github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (layouts)
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "codec/codes.h"
#include "codec/codes_columns_avx2-inl.h"
#include "codec/codes_pack_avx2-inl.h"
#include "codec/codes_types_avx2-inl.h"

namespace braid::codes {
namespace {

constexpr int64_t kAhead = 2048;   // bytes of codes prefetched ahead
constexpr float kLargest = 32639;  // 127 * 256 + 127

// Sums over four codes each of code times q; x as pack_row_avx2 or pack_row_avx2_words left it, of a half step.
struct Vnni {
  __m256i codes;
  BRAID_READ explicit Vnni(__m256i bytes) : codes(bytes) {}
  BRAID_READ static __m256i dot(__m256i acc, __m256i codes, const std::byte* x) {
    const __m256i v = load32(x);
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(codes), "x"(v));
    return acc;
  }
  BRAID_READ __m256i times(const std::byte* step, int side, __m256i start) const {
    const __m256i high = dot(_mm256_setzero_si256(), codes, step + kHalf * side);
    return _mm256_add_epi32(dot(start, codes, step + kStep + kHalf * side), _mm256_slli_epi32(high, 8));
  }
};
struct Words {
  __m256i even, odd;
  BRAID_READ explicit Words(__m256i bytes)
      : Words(_mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srli_epi16(bytes, 8)) {}
  BRAID_READ Words(__m256i evens, __m256i odds) : even(evens), odd(odds) {}
  BRAID_READ __m256i times(const std::byte* step, int side, __m256i start) const {
    const __m256i first = _mm256_madd_epi16(even, load32(step + kStep * side));
    const __m256i second = _mm256_madd_epi16(odd, load32(step + kStep * side + kHalf));
    return _mm256_add_epi32(_mm256_add_epi32(first, start), second);
  }
};

// The same for Words: codes become signed values in the upper bytes of words, so that no sum of x is needed.
struct Nvfp4Words {
  static constexpr int64_t kBytes = 8, kValues = 16;
  static constexpr int kZero = 12;
  // 2 e2m1. The lower bytes of words look up code 0, or nothing: 0.
  alignas(16) static constexpr int8_t kTable[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  BRAID_READ static Part read(const Row& row, int64_t part) {
    const uint8_t *p = row.codes + part * 16, *scales = row.scales + part * 2;
    const bool whole = row.depth - part * kHalf >= kHalf;
    const __m128i bytes = whole ? load16(p) : _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m256i upper = _mm256_setr_epi8(-1, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7,  //
                                           -1, 8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15);
    return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), upper),
            two_scales(scales[0], scales[whole ? 1 : 0]), _mm256_setzero_ps()};
  }
  BRAID_READ static Words words(__m256i codes) {
    const __m256i table = _mm256_broadcastsi128_si256(load16(reinterpret_cast<const uint8_t*>(kTable)));
    return {_mm256_shuffle_epi8(table, _mm256_and_si256(codes, _mm256_set1_epi16(0x0f00))),
            _mm256_shuffle_epi8(table, _mm256_srli_epi16(codes, 4))};
  }
};

// In the order of _mm512_reduce_add_ps.
BRAID_DOT inline float fold(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(high, low);
  const __m128 four = _mm_add_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <class Type, class Dots, int kRows>
BRAID_DOT void rows_of(const Row& row, float* out) {
  constexpr bool kMin = Type::kZero == 0, kSigned = std::is_same_v<Type, Nvfp4Words>;
  __m256 sums[kRows][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_ps();
  int64_t offset = 0;  // of the step in x
  const auto add = [&](const Part& part, int side) BRAID_READ {
    const Dots codes = [&]() BRAID_READ {
      if constexpr (kSigned) return Type::words(part.codes);
      if constexpr (!kSigned) return Dots(part.codes);
    }();
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const std::byte* x = row.packed[m] + offset;
      const __m256i start = load32(x + 2 * kStep + kHalf * side);
      const __m256i all = codes.times(x, side, kMin || kSigned ? _mm256_setzero_si256() : start);
      sums[m][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(all), part.scale, sums[m][side]);
      if (kMin) sums[m][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(start), part.min, sums[m][side]);
    }
  };
  const auto fetch = [&](int64_t i) BRAID_READ {
    const uint8_t* at = row.codes + i * kHalf / Type::kValues * Type::kBytes;
    asm volatile("prefetcht0 %0" : : "m"(at[kAhead]));
  };
  const int64_t parts = (row.depth + kHalf - 1) / kHalf, pairs = row.depth / kStep * 2;
  int64_t i = 0;
  if constexpr (OfFactors<Type>) {
    for (const uint8_t* block = row.codes; i < parts; i += 8, block += Type::kBytes) {
      const typename Type::Factors factors(block);
      for (int j = 0; j < 8; j += 2, offset += kStepBytes) {
        asm volatile("prefetcht0 %0" : : "m"(block[j * Type::kBytes / 8 + kAhead]));
        add(Type::read(block, factors, j), 0);
        add(Type::read(block, factors, j + 1), 1);
      }
    }
  } else {
    for (; i < pairs; i += 2, offset += kStepBytes) {
      fetch(i);
      add(Type::read(row, i), 0);
      add(Type::read(row, i + 1), 1);
    }
    if (i < parts) add(Type::read(row, i), 0);
    if (i + 1 < parts) add(Type::read(row, i + 1), 1);
  }
  for (int m = 0; m < kRows; ++m) out[m] = fold(sums[m][0], sums[m][1]) * (kSigned ? 1.0f / 256 : 1.0f);
}

template <class Type, class Dots>
void row_of(const Row& row, int64_t rows, float* sums) {
  constexpr void (*kBy[])(const Row&, float*) = {&rows_of<Type, Dots, 1>, &rows_of<Type, Dots, 2>,
                                                 &rows_of<Type, Dots, 3>, &rows_of<Type, Dots, 4>};
  kBy[rows - 1](row, sums);
}

// Values 8 i to 8 i + 7 of a part in decode_ggml's order of operations.
template <class Type, int kEighth>
BRAID_DOT inline __m256 values_of(const Part& part, __m256i codes, float worth) {
  const __m128i half = kEighth < 2 ? _mm256_castsi256_si128(codes) : _mm256_extracti128_si256(codes, 1);
  const __m256i eight = _mm256_cvtepi8_epi32(kEighth % 2 == 0 ? half : _mm_srli_si128(half, 8));
  constexpr int kFirst = 2 * kEighth, kSecond = kFirst + 1;
  const __m256i lanes = _mm256_setr_epi32(kFirst, kFirst, kFirst, kFirst, kSecond, kSecond, kSecond, kSecond);
  const __m256 scale = _mm256_mul_ps(_mm256_permutevar8x32_ps(part.scale, lanes), _mm256_set1_ps(worth));
  const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(eight), scale);
  return Type::kZero == 0 ? _mm256_add_ps(product, _mm256_permutevar8x32_ps(part.min, lanes)) : product;
}

BRAID_DOT inline void store(__m256 first, __m256 second, float* out) {
  _mm256_storeu_ps(out, first);
  _mm256_storeu_ps(out + 8, second);
}
// To nearest, ties to even.
BRAID_DOT inline __m256i rounded(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7fc0), nan);
}
BRAID_DOT inline void store(__m256 first, __m256 second, Bf16* out) {
  const __m256i both = _mm256_packus_epi32(rounded(first), rounded(second));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(both, 0xd8));
}

template <class Type, class Num>
BRAID_DOT inline void decode_part(const Row& row, int64_t k, float worth, Num* out) {
  const Part part = read<Type>(row, k / kHalf);
  const __m256i codes = _mm256_sub_epi8(part.codes, _mm256_set1_epi8(static_cast<char>(Type::kZero)));
  store(values_of<Type, 0>(part, codes, worth), values_of<Type, 1>(part, codes, worth), out);
  store(values_of<Type, 2>(part, codes, worth), values_of<Type, 3>(part, codes, worth), out + 16);
}

template <class Type, class Num>
BRAID_DOT void decode_row(const uint8_t* codes, int64_t begin, int64_t n, Num* values) {
  constexpr float kWorth = std::is_same_v<Type, Nvfp4Block> ? 128 : 1;
  const Row row{.codes = codes, .scales = nullptr, .depth = begin + n, .packed = {}};
  int64_t k = 0;
  for (; k + kHalf <= n; k += kHalf) decode_part<Type>(row, begin + k, kWorth, values + k);
  if (k == n) return;
  Num rest[kHalf];
  decode_part<Type>(row, begin + k, kWorth, rest);
  std::memcpy(values + k, rest, static_cast<size_t>(n - k) * sizeof(rest[0]));
}

// The unit of a sum: the scales of NVFP4 lack 2^8, and its codes are doubled.
template <class Type, class Dots>
constexpr Codes kCodesOf{.factor = Type::kZero == 0 ? 1 : -Type::kZero,
                         .worth = std::is_same_v<Type, Nvfp4Block> ? 128 : 1,
                         .grain = Type::kGrain,
                         .top = Type::kTop,
                         .columns = &columns_of<Type>,
                         .few = &few_of<Type>,
                         .few_rows = 3,
                         .dot = &row_of<Type, Dots>,
                         .bf16 = &decode_row<Type, Bf16>,
                         .bf16_unit = &decode_row<Type, Bf16>,
                         .f32 = &decode_row<Type, float>};
template <class Dots>
constexpr Codes kNvfp4{.factor = -Nvfp4Row::kZero,
                       .worth = 128,
                       .grain = Nvfp4Row::kGrain,
                       .top = Nvfp4Row::kTop,
                       .pairs = true,
                       .columns = &columns_of<Nvfp4Row>,
                       .few = &few_of<Nvfp4Row>,
                       .few_rows = 3,
                       .dot = &row_of<std::conditional_t<std::is_same_v<Dots, Words>, Nvfp4Words, Nvfp4Row>, Dots>};

template <class Dots>
const Codes* codes_by_type(GgmlType type) {
  switch (type) {
    case GgmlType::q8_0:
      return &kCodesOf<Q8_0, Dots>;
    case GgmlType::q4_0:
      return &kCodesOf<Q4_0, Dots>;
    case GgmlType::q4_1:
      return &kCodesOf<Q4_1, Dots>;
    case GgmlType::q5_0:
      return &kCodesOf<Q5_0, Dots>;
    case GgmlType::q5_1:
      return &kCodesOf<Q5_1, Dots>;
    case GgmlType::iq4_nl:
      return &kCodesOf<Iq4Nl, Dots>;
    case GgmlType::mxfp4:
      return &kCodesOf<Mxfp4, Dots>;
    case GgmlType::nvfp4:
      return &kCodesOf<Nvfp4Block, Dots>;
    case GgmlType::q4_k:
      return &kCodesOf<Q4K, Dots>;
    case GgmlType::q5_k:
      return &kCodesOf<Q5K, Dots>;
    case GgmlType::q6_k:
      return &kCodesOf<Q6K, Dots>;
    default:
      return nullptr;
  }
}

// Calls write(q, sums, k) with eight values of x at a time, as integers in the words of the two halves, and the sums of
// their fours times `factor`.
template <class Write>
BRAID_READ inline float pack_row(const Bf16* x, int64_t depth, int factor, std::byte* packed, const Write& write) {
  const float s = scale_of(x, depth, kLargest);
  const __m256 inverse = _mm256_set1_ps(1 / s);
  const bool bad = !(s > 0);
  for (int64_t k = 0; k < depth; k += kStep, packed += kStepBytes) {
    for (int64_t i = 0; i < kStep; i += 8) {
      const __m256 v = _mm256_mul_ps(values_at(x + k + i, bad ? 0 : depth - k - i), inverse);
      const __m256i q = bad ? _mm256_setzero_si256() : _mm256_cvtps_epi32(v);
      const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
      write(words, packed, i);
      const __m128i twos = _mm_madd_epi16(words, _mm_set1_epi16(1));
      const __m128i sums = _mm_mullo_epi32(_mm_hadd_epi32(twos, twos), _mm_set1_epi32(factor));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(packed + 2 * kStep + i), sums);
    }
  }
  return s;
}

}  // namespace

const Codes* codes_avx2(const QuantSpec& spec, bool vnni) {
  if (spec.format == Format::nvfp4) return vnni ? &kNvfp4<Vnni> : &kNvfp4<Words>;
  if (spec.format != Format::ggml) return nullptr;
  return vnni ? codes_by_type<Vnni>(spec.ggml) : codes_by_type<Words>(spec.ggml);
}

BRAID_DOT float pack_row_avx2(const Bf16* x, int64_t depth, int factor, std::byte* packed) {
  return pack_row(x, depth, factor, packed, [](__m128i words, std::byte* step, int64_t i) BRAID_READ {
    const __m128i high = _mm_srai_epi16(_mm_add_epi16(words, _mm_set1_epi16(128)), 8);
    const __m128i low = _mm_and_si128(words, _mm_set1_epi16(255));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(step + i), _mm_packs_epi16(high, high));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(step + kStep + i), _mm_packus_epi16(low, low));
  });
}

BRAID_DOT float pack_row_avx2_words(const Bf16* x, int64_t depth, int factor, std::byte* packed) {
  return pack_row(x, depth, factor, packed, [](__m128i words, std::byte* step, int64_t i) BRAID_READ {
    // Of four words the even ones, then the odd ones.
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m128i sorted = _mm_shuffle_epi8(words, order);
    std::byte* even = step + i / kHalf * kStep + i % kHalf;
    _mm_storel_epi64(reinterpret_cast<__m128i*>(even), sorted);
    _mm_storeh_pd(reinterpret_cast<double*>(even + kHalf), _mm_castsi128_pd(sorted));
  });
}

}  // namespace braid::codes
