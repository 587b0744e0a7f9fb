// Sixteen numbers as BF16, as to_bf16 (core/dtype.h): to nearest, ties to even, subnormals kept, which the instruction
// takes for zeros. For files compiled for AVX-512.
#pragma once
#include <immintrin.h>

namespace braid {
namespace {

__attribute__((target("avx512f,avx512bw,avx512vl"))) inline __m256i as_bf16(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(sum, nan, quiet), 16));
}

}  // namespace
}  // namespace braid
