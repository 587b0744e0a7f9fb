#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "codec/nvfp4.h"
#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "core/philox.h"
#include "math/codes_a8.h"
#include "math/codes_a8_kernel.h"
#include "math/codes_dot.h"
#include "math/tile.h"
#include "sys/machine.h"

namespace braid {
namespace {

std::vector<uint16_t> decoded(const tiles::Walk& walk, tiles::Decode d) {
  std::vector<uint16_t> space(32 * 512 + 32, 0xdead);
  d.out = space.data() + (64 - reinterpret_cast<uintptr_t>(space.data()) % 64) / 2;
  walk.decode(d);
  return {d.out, d.out + 32 * 512};
}

// What tiles read, instructions against the definition: every scale but NaN with every code, at every length.
TEST(Tiles, DecodersAgreeToTheBit) {
  if (!sys::machine().amx) GTEST_SKIP() << "no tiles on this machine";
  std::vector<uint8_t> codes(512), scales(32);
  for (int first = 0; first < 256; first += 16) {
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(first * 7 + static_cast<int>(i) * 37);
    for (int i = 0; i < 32; ++i) {
      const auto bits = static_cast<uint8_t>(first + i);
      scales[static_cast<size_t>(i)] = (bits & 0x7f) == 0x7f ? 0 : bits;
    }
    for (int64_t n = 16; n <= 512; n += 16) {
      const int64_t rows = n % 48 == 0 ? 3 : 1;
      const tiles::Decode d{.codes = codes.data(),
                            .scales = scales.data(),
                            .codes_stride = 96,
                            .scales_stride = 5,
                            .rows = rows,
                            .values = std::min<int64_t>(n, rows == 1 ? 512 : 336)};
      ASSERT_EQ(decoded(tiles::walk_soft(), d), decoded(tiles::walk_amx(), d)) << first << " " << n;
      tiles::Decode blocks = d;
      blocks.order = tiles::Order::ggml_nvfp4;
      blocks.values = (d.values / 2 + 63) / 64 * 64;
      ASSERT_EQ(decoded(tiles::walk_soft(), blocks), decoded(tiles::walk_amx(), blocks)) << first << " " << n;
    }
    for (int64_t n = 1; n <= 512; n += 1 + n / 8) {
      std::vector<uint16_t> soft(512, 0xdead), hard(512, 0xdead);
      tiles::walk_soft().fp8(codes.data(), n, soft.data());
      tiles::walk_amx().fp8(codes.data(), n, hard.data());
      ASSERT_EQ(soft, hard) << first << " " << n;
    }
  }
}

// Packed rows and written results, instructions against the definition: every count of rows, ragged depths and columns,
// subnormal, infinite and NaN values.
TEST(Tiles, PackingAndResultsAgreeToTheBit) {
  if (!sys::machine().amx) GTEST_SKIP() << "no tiles on this machine";
  std::vector<uint16_t> x(16 * 300);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i * 40503u);
  for (int64_t rows = 1; rows <= 16; ++rows) {
    for (const int64_t depth : {1, 31, 32, 100, 128, 129, 160, 300}) {
      for (const tiles::Order order : {tiles::Order::plain, tiles::Order::nvfp4, tiles::Order::ggml_nvfp4}) {
        tiles::Pack p{.rows = rows, .depth = depth, .codes = rows % 2 == 0, .order = order};
        for (int64_t r = 0; r < rows; ++r) p.row[r] = x.data() + r * 300;
        std::vector<uint16_t> soft(16 * 512, 0xdead), hard = soft;
        p.out = soft.data();
        tiles::walk_soft().pack(p);
        p.out = hard.data();
        tiles::walk_amx().pack(p);
        ASSERT_EQ(soft, hard) << rows << " x " << depth << " " << static_cast<int>(order);
      }
    }
  }
  alignas(64) static std::array<float, size_t{32} * 48> sums;
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = std::bit_cast<float>(static_cast<uint32_t>(i * 2654435761u));
  for (const int64_t rows : {1, 15, 16, 17, 40}) {
    for (const int64_t cols : {1, 16, 29, 32}) {
      tiles::Result r{.sums = sums.data(), .rows = rows, .cols = cols, .factor = 1.5f, .y_stride = 33};
      std::vector<float> soft(40 * 33, 7), hard = soft;
      r.f32 = soft.data();
      tiles::walk_soft().result(r);
      r.f32 = hard.data();
      tiles::walk_amx().result(r);
      ASSERT_EQ(std::memcmp(soft.data(), hard.data(), soft.size() * 4), 0) << rows << " x " << cols;
      std::vector<uint16_t> soft_bf16(40 * 33, 7), hard_bf16 = soft_bf16;
      r.bf16 = soft_bf16.data();
      tiles::walk_soft().result(r);
      r.bf16 = hard_bf16.data();
      tiles::walk_amx().result(r);
      ASSERT_EQ(soft_bf16, hard_bf16) << rows << " x " << cols;
    }
  }
}

// Every scale but NaN with every code, subnormal and negative scales too, at every length: against sums in
// double. x loses at most half of 2^-15 of its largest value.
TEST(Codes, DotsOfEveryScaleAndCode) {
  std::vector<uint8_t> codes(512);
  std::vector<F8E4M3> scales(64);
  for (int first = 0; first < 256; first += 32) {
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(first * 5 + static_cast<int>(i) * 37);
    for (int i = 0; i < 64; ++i) {
      const auto bits = static_cast<uint8_t>(first + i);
      scales[static_cast<size_t>(i)].bits = (bits & 0x7f) == 0x7f ? 0 : bits;
    }
    for (int64_t n = 16; n <= 1024; n += n < 96 ? 16 : 112) {
      const Weight w{.rows = 1,
                     .cols = n,
                     .spec = {Format::nvfp4, 16},
                     .codes = view_of(codes.data(), {1, n / 2}),
                     .scales = view_of(scales.data(), {1, n / 16}),
                     .global = 0.5f};
      if (const char* reason = codes::refusal(w)) GTEST_SKIP() << reason;
      std::vector<Bf16> x(static_cast<size_t>(n));
      for (int64_t k = 0; k < n; ++k)
        x[static_cast<size_t>(k)] = to_bf16(static_cast<float>((k * 89 + first) % 255 - 127));
      std::vector<std::byte> packed(static_cast<size_t>(codes::packed_bytes(1, n)));
      codes::pack(view_of(x.data(), {1, n}), w.spec, packed.data());
      float got = 0;
      codes::product(packed.data(), w, mut_view_of(&got, {1, 1}));
      const auto values = decode(w);
      double want = 0, size = 0;
      for (int64_t k = 0; k < n; ++k) {
        const double part = values[static_cast<size_t>(k)] * static_cast<double>(to_float(x[static_cast<size_t>(k)]));
        want += part;
        size += std::fabs(part);
      }
      EXPECT_NEAR(static_cast<double>(got), want, 4e-5 * size + 1e-12) << first << " " << n;
    }
  }
}

constexpr GgmlType kTypesInCodes[] = {GgmlType::q8_0, GgmlType::q4_0,   GgmlType::q4_1,  GgmlType::q5_0,
                                      GgmlType::q5_1, GgmlType::iq4_nl, GgmlType::mxfp4, GgmlType::nvfp4,
                                      GgmlType::q4_k, GgmlType::q5_k,   GgmlType::q6_k};

// Weights of every type in codes, [rows, about cols].
std::vector<TestWeight> weights_in_codes(int64_t rows, int64_t cols) {
  std::vector<TestWeight> all;
  all.emplace_back(Format::nvfp4, rows, cols, 7);
  for (const GgmlType type : kTypesInCodes) {
    const int64_t values = ggml_type(static_cast<uint32_t>(type))->values;
    all.emplace_back(type, rows, (cols + values - 1) / values * values, 7);
  }
  return all;
}

// The definition of codes_a16 in its order of operations, with scalars: 16 sums in parallel, reduced in halves.
float sum_in_order(const std::vector<double>& codes, const std::vector<float>& scales, const std::vector<float>& minima,
                   const std::vector<int>& q) {
  float sums[16] = {};
  for (size_t k = 0; k < q.size(); k += 4) {
    int64_t product = 0, total = 0;
    for (size_t i = k; i < k + 4; ++i) product += static_cast<int64_t>(codes[i]) * q[i], total += q[i];
    float& sum = sums[k / 4 % 16];
    sum = std::fma(static_cast<float>(product), scales[k / 4], sum);
    if (!minima.empty()) sum = std::fma(static_cast<float>(total), minima[k / 4], sum);
  }
  for (const int width : {8, 4, 2, 1}) {
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

// The rows for AVX2, with and without VNNI, match the definition bit for bit, on types whose blocks are simple to
// decode here: Q4_0, Q4_1, Q8_0.
TEST(Codes, Avx2IsTheDefinitionInItsOrder) {
  if (!sys::machine().avx2) GTEST_SKIP() << "no AVX2";
  struct Blocks {
    GgmlType type;
    int64_t bytes, head;  // of a block; before its codes
    int bits, zero;
  };
  for (const Blocks& b :
       {Blocks{GgmlType::q4_0, 18, 2, 4, 8}, {GgmlType::q4_1, 20, 4, 4, 0}, {GgmlType::q8_0, 34, 2, 8, 0}}) {
    for (const int64_t depth : {32, 64, 96, 1856}) {
      const TestWeight test(b.type, 3, depth, 5);
      const TestTensor x(DType::bf16, {codes::kRowsMax, depth}, 11);
      for (int64_t n = 0; n < 3; ++n) {
        const uint8_t* bytes = test.weight().codes.as<uint8_t>(n);
        std::vector<double> values;
        std::vector<float> scales, minima;
        for (const uint8_t* p = bytes; p < bytes + depth / 32 * b.bytes; p += b.bytes) {
          for (int i = 0; i < 32; ++i) {
            const uint8_t* code = p + b.head;
            values.push_back(b.bits == 8 ? static_cast<int8_t>(code[i]) : (code[i % 16] >> i / 16 * 4 & 15) - b.zero);
          }
          F16 half[2];
          std::memcpy(half, p, b.head == 4 ? 4 : 2);
          scales.insert(scales.end(), 8, to_float(half[0]));
          if (b.head == 4) minima.insert(minima.end(), 8, to_float(half[1]));
        }
        for (const bool vnni : {false, true}) {
          if (vnni && !sys::machine().avx_vnni) continue;
          const codes::Codes& own = *codes::codes_avx2(test.weight().spec, vnni);
          const auto pack_row = vnni ? &codes::pack_row_avx2 : &codes::pack_row_avx2_words;
          codes::Row row{.codes = bytes, .scales = nullptr, .depth = depth, .packed = {}};
          std::vector<std::byte> packed[codes::kRowsMax];
          float want[codes::kRowsMax], got[codes::kRowsMax];
          for (int64_t m = 0; m < codes::kRowsMax; ++m) {
            packed[m].resize(static_cast<size_t>((depth + 63) / 64 * codes::kStepBytes));
            const Bf16* values_of_x = x.view().as<Bf16>(m);
            const float s = pack_row(values_of_x, depth, own.factor, packed[m].data()), inverse = 1 / s;
            std::vector<int> q;
            for (int64_t k = 0; k < depth; ++k)
              q.push_back(static_cast<int>(std::nearbyint(to_float(values_of_x[k]) * inverse)));
            row.packed[m] = packed[m].data();
            want[m] = sum_in_order(values, scales, minima, q);
          }
          own.dot(row, codes::kRowsMax, got);
          for (int64_t m = 0; m < codes::kRowsMax; ++m)
            EXPECT_EQ(got[m], want[m]) << b.bytes << " " << depth << " " << vnni;
        }
      }
    }
  }
}

// The rows of both instruction sets, with and without VNNI: one class, the same bits.
TEST(Codes, Avx2IsBitIdenticalToAvx512) {
  if (!sys::machine().avx512_vnni) GTEST_SKIP() << "no AVX-512 VNNI";
  for (const auto& [cols, depth] : {std::pair<int64_t, int64_t>{3, 32}, {2, 80}, {4, 160}, {5, 1856}, {3, 2688}}) {
    for (const TestWeight& test : weights_in_codes(cols, depth)) {
      const Weight& w = test.weight();
      const TestTensor x(DType::bf16, {codes::kRowsMax, w.cols}, 11);
      const codes::Codes& wide = *codes::codes_of(w.spec);
      const auto bytes = static_cast<size_t>((w.cols + codes::kStep - 1) / codes::kStep * codes::kStepBytes);
      std::vector<std::byte> packed[codes::kRowsMax], words[codes::kRowsMax];
      codes::Row row{.codes = nullptr, .scales = nullptr, .depth = w.cols, .packed = {}}, row_of_words = row;
      for (int64_t m = 0; m < codes::kRowsMax; ++m) {
        std::vector<std::byte> other(bytes);
        packed[m].resize(bytes);
        words[m].resize(bytes);
        const Bf16* values = x.view().as<Bf16>(m);
        const float s = codes::pack_row_avx512(values, w.cols, wide.factor, packed[m].data());
        EXPECT_EQ(codes::pack_row_avx2(values, w.cols, wide.factor, other.data()), s);
        EXPECT_EQ(codes::pack_row_avx2_words(values, w.cols, wide.factor, words[m].data()), s);
        EXPECT_EQ(packed[m], other) << w.cols;
        row.packed[m] = packed[m].data();
        row_of_words.packed[m] = words[m].data();
      }
      for (const bool vnni : {false, true}) {
        if (vnni && !sys::machine().avx_vnni) continue;
        const codes::Codes* narrow = codes::codes_avx2(w.spec, vnni);
        ASSERT_NE(narrow, nullptr);
        EXPECT_EQ(narrow->factor, wide.factor);
        EXPECT_EQ(narrow->worth, wide.worth);
        for (int64_t n = 0; n < cols; ++n) {
          row.codes = row_of_words.codes = w.codes.as<uint8_t>(n);
          if (w.scales) row.scales = row_of_words.scales = &w.scales.as<F8E4M3>(n)->bits;
          for (int64_t rows = 1; rows <= codes::kRowsMax; ++rows) {
            float want[codes::kRowsMax] = {}, got[codes::kRowsMax] = {};
            wide.dot(row, rows, want);
            narrow->dot(vnni ? row : row_of_words, rows, got);
            EXPECT_EQ(std::memcmp(want, got, sizeof(want)), 0)
                << w.cols << " " << vnni << " " << want[0] << " " << got[0];
          }
        }
      }
    }
  }
}

// Rows without a scale: too small for one, not finite.
TEST(Codes, BothPackersAgreeOnRowsWithoutAScale) {
  if (!sys::machine().avx512_vnni) GTEST_SKIP() << "no AVX-512 VNNI";
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0f, 1e-38f, 9e-35f, 1e-31f, infinity, -infinity, std::nanf("")}) {
    std::vector<Bf16> x(96, to_bf16(value));
    x[5] = to_bf16(0.0f);
    std::vector<std::byte> wide(2 * codes::kStepBytes), narrow(wide.size());
    const float a = codes::pack_row_avx512(x.data(), 96, -12, wide.data());
    const float b = codes::pack_row_avx2(x.data(), 96, -12, narrow.data());
    EXPECT_EQ(std::isnan(a), !std::isfinite(value)) << value;
    EXPECT_EQ(std::isnan(b), !std::isfinite(value)) << value;
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(a, 1.0f);
    EXPECT_EQ(b, 1.0f);
    EXPECT_EQ(wide, narrow) << value;
    EXPECT_EQ(wide, std::vector<std::byte>(wide.size())) << value;
  }
}

// A NaN in x makes every result NaN.
TEST(Codes, ANanOfXReachesTheResult) {
  const TestWeight w(GgmlType::q8_0, 2, 96, 5);
  if (const char* reason = codes::refusal(w.weight())) GTEST_SKIP() << reason;
  std::vector<Bf16> x(96, to_bf16(1.0f));
  x[70].bits = 0x7fc0;
  std::vector<std::byte> packed(static_cast<size_t>(codes::packed_bytes(1, 96)));
  codes::pack(view_of(x.data(), {1, 96}), w.weight().spec, packed.data());
  float got[2] = {};
  codes::product(packed.data(), w.weight(), mut_view_of(got, {1, 2}));
  EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1]));
}

// x as class codes_a8 rounds it: groups of 128 values, each of `scale` times integers.
std::vector<double> rounded_to_8_bits(const Bf16* x, int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t g = 0; g < n; g += 128) {
    const int64_t end = std::min(g + 128, n);
    float amax = 0;
    for (int64_t k = g; k < end; ++k) amax = std::max(amax, std::fabs(to_float(x[k])));
    const float scale = amax > 1e-30f ? amax / 127 : 1.0f, inverse = 1 / scale;
    for (int64_t k = g; k < end; ++k)
      values[static_cast<size_t>(k)] =
          static_cast<double>(scale) * static_cast<double>(std::nearbyint(to_float(x[k]) * inverse));
  }
  return values;
}

// Rows of x by every type, at edges of blocks of 6 rows, strips of 32 columns, steps of 64 and groups of 128 values:
// the definition on rounded x, and the same bits for a row whatever rows are with it.
TEST(CodesA8, IsTheDefinitionForAnyNeighbouringRows) {
  constexpr int64_t kRows = 13;
  for (const auto& [cols, depth] : {std::pair<int64_t, int64_t>{1, 64}, {33, 96}, {70, 160}, {40, 1136}}) {
    for (const TestWeight& test : weights_in_codes(cols, depth)) {
      const Weight& w = test.weight();
      if (const char* reason = codes::refusal(w)) GTEST_SKIP() << reason;
      const TestTensor x(DType::bf16, {kRows, w.cols}, 11);
      const int64_t own = codes::a8::row_bytes(w.spec, w.cols);
      std::vector<std::byte> space(static_cast<size_t>(codes::a8::workspace(kRows)));
      const auto product = [&](int64_t first, int64_t n, float* y) {
        std::vector<std::byte> packed(static_cast<size_t>(n * own));
        for (int64_t m = 0; m < n; m += codes::a8::kBlockRows) {
          const Bf16* rows[codes::a8::kBlockRows];
          const int64_t some = std::min(codes::a8::kBlockRows, n - m);
          for (int64_t r = 0; r < some; ++r) rows[r] = x.view().as<Bf16>(first + m + r);
          codes::a8::pack(rows, some, w.cols, w.spec, packed.data() + m * own);
        }
        codes::a8::product(packed.data(), w, mut_view_of(y, {n, w.rows}), space);
      };
      std::vector<float> all(static_cast<size_t>(kRows * cols), NAN);
      product(0, kRows, all.data());
      const std::vector<double> values = decode(w);
      double error = 0, total = 0;
      for (int64_t m = 0; m < kRows; ++m) {
        const std::vector<double> q = rounded_to_8_bits(x.view().as<Bf16>(m), w.cols);
        for (int64_t n = 0; n < cols; ++n) {
          double want = 0, size = 0, real = 0;
          for (int64_t k = 0; k < w.cols; ++k) {
            const double v = values[static_cast<size_t>(n * w.cols + k)];
            want += v * q[static_cast<size_t>(k)];
            size += std::fabs(v * q[static_cast<size_t>(k)]);
            real += v * static_cast<double>(to_float(x.view().as<Bf16>(m)[k]));
          }
          const auto got = static_cast<double>(all[static_cast<size_t>(m * cols + n)]);
          ASSERT_NEAR(got, want, 3e-6 * size) << m << " " << n << " " << w.cols;
          error += (got - real) * (got - real), total += real * real;
        }
      }
      EXPECT_LT(std::sqrt(error / total), 0.012) << w.cols;
      for (const auto& [first, n] : {std::pair<int64_t, int64_t>{0, 1},
                                     {5, 1},
                                     {12, 1},
                                     {3, 2},
                                     {1, 3},
                                     {9, 4},
                                     {2, 5},
                                     {7, 6},
                                     {4, 9},
                                     {1, 10}}) {
        std::vector<float> some(static_cast<size_t>(n * cols), NAN);
        product(first, n, some.data());
        EXPECT_EQ(std::memcmp(some.data(), &all[static_cast<size_t>(first * cols)], some.size() * sizeof(float)), 0)
            << first << " " << n;
      }
    }
  }
}

using Strips = void(const codes::a8::Strip&, const codes::Codes&);
std::vector<Strips*> strips_for_avx2() {
  std::vector<Strips*> all;
  if (sys::machine().avx2) all.push_back(&codes::a8::strip_avx2);
  if (sys::machine().avx_vnni) all.push_back(&codes::a8::strip_avx2_vnni);
  return all;
}

// A strip by AVX2 is bit-identical to one by AVX-512, whatever the order of codes in their units.
TEST(CodesA8, Avx2IsBitIdenticalToAvx512) {
  using namespace codes::a8;
  if (!sys::machine().avx512_vnni) GTEST_SKIP() << "no AVX-512 with VNNI";
  for (const int64_t depth : {32, 80, 160, 336, 512}) {
    for (const TestWeight& test : weights_in_codes(27, depth)) {
      const Weight& w = test.weight();
      const TestTensor x(DType::bf16, {kBlockRows, w.cols}, 11);
      for (int64_t rows = 1; rows <= kBlockRows; ++rows) {
        const auto sums = [&](const codes::Codes& own, Strips* strips, auto* pack_row) {
          std::vector<std::byte> packed(static_cast<size_t>(rows * row_bytes(w.spec, w.cols)));
          for (int64_t r = 0; r < rows; ++r) pack_row(x.view().as<Bf16>(r), w.cols, own, rows, r, packed.data());
          const int64_t half = 8 * unit_bytes(own.grain, own.factor == 1);
          std::vector<std::byte> units(static_cast<size_t>(2 * half));
          for (const int64_t first : {0, 16}) {
            const codes::Columns columns{.codes = w.codes.as<uint8_t>(first),
                                         .scales = w.scales ? &w.scales.as<F8E4M3>(first)->bits : nullptr,
                                         .codes_stride = w.codes.stride(0),
                                         .scales_stride = w.scales ? w.scales.stride(0) : 0,
                                         .count = std::min<int64_t>(16, w.rows - first),
                                         .depth = w.cols};
            own.columns(columns, 0, w.cols, units.data() + first / 16 * half);
          }
          std::vector<float> y(static_cast<size_t>(rows * kStripCols), NAN);
          strips({.x = packed.data(),
                  .w = units.data(),
                  .w_half = half,
                  .rows = rows,
                  .steps = (w.cols + 63) / 64,
                  .y = y.data()},
                 own);
          return y;
        };
        const std::vector<float> want = sums(*codes::codes_of(w.spec), &strip_avx512, &pack_row_avx512);
        for (Strips* strips : strips_for_avx2()) {
          const std::vector<float> found = sums(*codes::codes_avx2(w.spec, true), strips, &pack_row_avx2);
          EXPECT_EQ(std::memcmp(found.data(), want.data(), want.size() * sizeof(float)), 0)
              << w.cols << " " << rows << " " << found[0] << " " << want[0];
        }
        const codes::Codes& own = *codes::codes_avx2(w.spec, true);
        if (rows > own.few_rows) continue;
        std::vector<std::byte> packed(static_cast<size_t>(rows * row_bytes(w.spec, w.cols)));
        for (int64_t r = 0; r < rows; ++r) pack_row_avx2(x.view().as<Bf16>(r), w.cols, own, rows, r, packed.data());
        float few[kBlockRows * codes::kFewCols] = {};
        own.few({.codes = w.codes.as<uint8_t>(0),
                 .scales = w.scales ? &w.scales.as<F8E4M3>(0)->bits : nullptr,
                 .codes_stride = w.codes.stride(0),
                 .scales_stride = w.scales ? w.scales.stride(0) : 0,
                 .count = codes::kFewCols,
                 .depth = w.cols},
                packed.data(), rows, few);
        for (int64_t i = 0; i < rows * codes::kFewCols; ++i)
          EXPECT_EQ(few[i], want[static_cast<size_t>(i / codes::kFewCols * kStripCols + i % codes::kFewCols)])
              << w.cols << " " << i;
      }
    }
  }
}

// The largest code of every type times the largest values of x, of either sign: no 16-bit sum overflows.
TEST(CodesA8, LargestCodesFitTheirSums) {
  using namespace codes::a8;
  if (!sys::machine().avx2) GTEST_SKIP() << "no AVX2";
  for (const TestWeight& test : weights_in_codes(27, 512)) {
    const codes::Codes& own = *codes::codes_avx2(test.weight().spec, false);
    const int64_t blocks = kStep / own.grain, unit = unit_bytes(own.grain, own.factor == 1);
    std::vector<std::byte> units(static_cast<size_t>(2 * unit), static_cast<std::byte>(own.top));
    for (int64_t i = 0; i < 2; ++i) {
      auto* factors = reinterpret_cast<float*>(units.data() + i * unit + kUnitCodes);
      std::fill_n(factors, blocks * kUnitRows, 1.0f);
      if (own.factor == 1) std::fill_n(factors + blocks * kUnitRows, blocks * kUnitRows, 0.0f);
    }
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<Bf16> x(kStep, to_bf16(127 * sign));
      std::vector<std::byte> packed(static_cast<size_t>(kBlockRows * group_bytes(own.grain, 1)));
      for (int64_t r = 0; r < kBlockRows; ++r) pack_row_avx2(x.data(), kStep, own, kBlockRows, r, packed.data());
      for (Strips* strips : strips_for_avx2()) {
        std::vector<float> y(static_cast<size_t>(kBlockRows * kStripCols), NAN);
        strips({.x = packed.data(), .w = units.data(), .w_half = unit, .rows = kBlockRows, .steps = 1, .y = y.data()},
               own);
        const float want = sign * 127 * kStep * static_cast<float>(own.top + (own.factor == 1 ? 0 : own.factor));
        for (const float v : y) ASSERT_EQ(v, want) << own.top << " " << own.grain;
      }
    }
  }
}

// The same of rows that are read in place: two bytes of scale, then the largest code throughout.
TEST(CodesA8, LargestCodesFitTheirSumsInPlace) {
  using namespace codes::a8;
  struct Case {
    GgmlType type;
    int64_t block;
    uint8_t bytes;
    float value;
  };
  for (const Case& c :
       {Case{GgmlType::q4_0, 18, 0xff, 7}, {GgmlType::q5_0, 22, 0xff, 15}, {GgmlType::q8_0, 34, 0x7f, 127}}) {
    std::vector<uint8_t> rows(static_cast<size_t>(17 * 8 * c.block), c.bytes);
    for (size_t i = 0; i < rows.size(); i += static_cast<size_t>(c.block)) rows[i] = 0, rows[i + 1] = 0x3c;  // 1.0
    const Weight w = ggml_weight(c.type, view_of(rows.data(), {17, 8 * c.block}), 256);
    if (const char* reason = codes::refusal(w)) GTEST_SKIP() << reason;
    for (int64_t n = 1; n <= kBlockRows; ++n) {
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<Bf16> x(256, to_bf16(127 * sign));
        const std::vector<const Bf16*> same(static_cast<size_t>(n), x.data());
        std::vector<std::byte> packed(static_cast<size_t>(n * row_bytes(w.spec, w.cols))),
            space(static_cast<size_t>(workspace(n)));
        pack(same.data(), n, w.cols, w.spec, packed.data());
        std::vector<float> y(static_cast<size_t>(n * w.rows), NAN);
        product(packed.data(), w, mut_view_of(y.data(), {n, w.rows}), space);
        for (const float v : y) ASSERT_EQ(v, sign * 127 * 256 * c.value) << n << " " << c.value;
      }
    }
  }
}

// One group has a NaN, one an infinity, one only zeros, one values too small for a scale.
TEST(CodesA8, GroupsWithoutAScale) {
  const TestWeight w(GgmlType::q8_0, 2, 512, 5);
  if (const char* reason = codes::refusal(w.weight())) GTEST_SKIP() << reason;
  const auto product = [&](int64_t at, float value) {
    std::vector<Bf16> x(512, Bf16{});
    x[static_cast<size_t>(at)] = to_bf16(value);
    x[3] = to_bf16(1.0f);
    std::vector<std::byte> packed(static_cast<size_t>(codes::a8::row_bytes(w.weight().spec, 512)));
    std::vector<std::byte> space(static_cast<size_t>(codes::a8::workspace(1)));
    const Bf16* row = x.data();
    codes::a8::pack(&row, 1, 512, w.weight().spec, packed.data());
    float got[2] = {};
    codes::a8::product(packed.data(), w.weight(), mut_view_of(got, {1, 2}), space);
    return got[1];
  };
  const float alone = product(300, 0.0f);
  EXPECT_NEAR(static_cast<double>(alone), decode(w.weight())[512 + 3], 1e-6);
  EXPECT_EQ(product(300, 1e-36f), alone);
  EXPECT_NE(product(300, 1e-3f), alone);
  EXPECT_TRUE(std::isnan(product(300, std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(product(300, std::numeric_limits<float>::infinity())));
}

}  // namespace
}  // namespace braid
