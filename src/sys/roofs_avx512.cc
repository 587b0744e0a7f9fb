// Roofs of the AVX-512 dot products and of the tiles: independent chains, no memory. No std containers and no lambdas
// here (docs/internals/cpu.md, Code for one instruction set).
#include <immintrin.h>

#include "sys/roofs_units.h"

namespace braid::sys {

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) double unit_bf16_dot(int64_t rounds, float* sink) {
  constexpr int kChains = 20;
  __m512 acc[kChains];
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) {
    acc[i] = _mm512_setzero_ps();
    asm("" : "+v"(acc[i]));  // or the compiler sees that all chains are equal and computes one
  }
  const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f80), y = (__m512bh)_mm512_set1_epi16(0x3c00);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], x, y);
  }
#pragma GCC unroll 20
  for (int i = 1; i < kChains; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  _mm512_storeu_ps(sink, acc[0]);
  return 64.0 * kChains * static_cast<double>(rounds);  // 16 lanes, two products and two sums each
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"))) double unit_int8_dot(int64_t rounds, float* sink) {
  constexpr int kChains = 20;
  __m512i acc[kChains];
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) {
    acc[i] = _mm512_setzero_si512();
    asm("" : "+v"(acc[i]));
  }
  const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-2);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], x, y);
  }
#pragma GCC unroll 20
  for (int i = 1; i < kChains; ++i) acc[0] = _mm512_add_epi32(acc[0], acc[i]);
  _mm512_storeu_si512(sink, acc[0]);
  return 128.0 * kChains * static_cast<double>(rounds);
}

namespace {

// Tile shapes of `ldtilecfg`: palette 1, eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

__attribute__((target("amx-tile,amx-bf16"))) double unit_amx_bf16(int64_t rounds) {
  static constexpr TileConfig kConfig{};
  alignas(64) static constexpr uint8_t kZero[1024] = {};
  _tile_loadconfig(&kConfig);
  _tile_loadd(4, kZero, 64);
  _tile_loadd(6, kZero, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 6);
    _tile_dpbf16ps(2, 4, 6);
    _tile_dpbf16ps(3, 4, 6);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(rounds);
}

__attribute__((target("amx-tile,amx-int8"))) double unit_amx_int8(int64_t rounds) {
  static constexpr TileConfig kConfig{};
  alignas(64) static constexpr uint8_t kZero[1024] = {};
  _tile_loadconfig(&kConfig);
  _tile_loadd(4, kZero, 64);
  _tile_loadd(6, kZero, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 6);
    _tile_dpbssd(2, 4, 6);
    _tile_dpbssd(3, 4, 6);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 64 * static_cast<double>(rounds);
}

}  // namespace braid::sys
