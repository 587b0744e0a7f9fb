#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "codec/codes.h"
#include "codec/fp8.h"
#include "codec/ggml_blocks.h"
#include "codec/nvfp4.h"
#include "codec/quant_codec.h"
#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "sys/machine.h"

namespace braid {
namespace {

TEST(Blocks, E2m1TiesGoToTheEvenCode) {
  const std::vector<std::pair<float, int>> cases = {{0.25f, 0}, {0.26f, 1}, {0.75f, 2},  {1.25f, 2},
                                                    {1.75f, 4}, {2.5f, 4},  {3.5f, 6},   {5.0f, 6},
                                                    {5.1f, 7},  {99.f, 7},  {-0.75f, 10}};
  for (const auto& c : cases) EXPECT_EQ(e2m1_code(c.first), c.second) << c.first;
  for (int code = 0; code < 16; ++code) EXPECT_EQ(e2m1_code(e2m1_value(code)), code);
}

TEST(Blocks, Nvfp4LowNibbleIsTheEvenColumn) {
  std::vector<float> values(32, 0.0f);
  values[0] = 6, values[1] = -3, values[17] = 12;
  std::vector<uint8_t> codes(16);
  std::vector<F8E4M3> scales(2);
  const float global = nvfp4_global(12);
  encode_nvfp4_row(values, global, codes.data(), scales.data());
  EXPECT_EQ(codes[0], 7 | (8 + 5) << 4);
  const Weight w{.rows = 1,
                 .cols = 32,
                 .spec = {Format::nvfp4, 16},
                 .codes = view_of(codes.data(), {1, 16}),
                 .scales = view_of(scales.data(), {1, 2}),
                 .global = global};
  const auto back = decode(w);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], static_cast<double>(values[i]), 1e-5);
}

TEST(Blocks, TheSmallestMagnitudesAreZerosNotNaN) {
  for (const float amax : {0.0f, 1e-45f, 1e-43f, 1e-42f, 1e-37f}) {
    std::vector<float> values(16, 0.0f);
    values[3] = -amax;
    uint8_t codes[8];
    F8E4M3 scale{}, wide[16];
    encode_nvfp4_row(values, nvfp4_global(amax), codes, &scale);
    encode_fp8_row(values, fp8_global(amax), wide);
    const Weight fp4{.rows = 1,
                     .cols = 16,
                     .spec = {Format::nvfp4, 16},
                     .codes = view_of(codes, {1, 8}),
                     .scales = view_of(&scale, {1, 1}),
                     .global = nvfp4_global(amax)};
    const Weight fp8{.rows = 1,
                     .cols = 16,
                     .spec = {.format = Format::f8_e4m3},
                     .codes = view_of(wide, {1, 16}),
                     .global = fp8_global(amax)};
    for (const Weight& w : {fp4, fp8}) {
      const auto back = decode(w);
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(back[i], static_cast<double>(values[i]), std::max(2e-42, 0.1 * static_cast<double>(amax))) << amax;
    }
  }
}

// A row of blocks of a GGUF file, from any column to any other.
TEST(Blocks, RowsOfGgmlBlocksAreCutAnywhere) {
  const int64_t cols = 768;
  for (const GgmlTypeRow& row : ggml_types()) {
    const GgmlType type = row.type;
    if (!encodes(type)) continue;
    SCOPED_TRACE(row.name);
    const TestWeight w(type, 3, cols, 5);
    std::vector<float> all(3 * cols);
    decode_ggml(type, w.weight().codes.data, all);
    const std::pair<int64_t, int64_t> cuts[] = {{0, cols},  {0, 1},   {31, 2},    {32, 32},
                                                {250, 300}, {64, 96}, {640, 128}, {767, 1}};
    for (const auto& [begin, n] : cuts) {
      std::vector<float> wide(static_cast<size_t>(n), 9.0f);
      std::vector<Bf16> narrow(wide.size());
      decode_row(w.weight(), 2, begin, n, wide.data());
      decode_row(w.weight(), 2, begin, n, narrow.data());
      for (size_t i = 0; i < wide.size(); ++i) {
        const auto at = static_cast<size_t>(2 * cols + begin) + i;
        ASSERT_EQ(wide[i], all[at]) << begin << " " << i;
        ASSERT_EQ(narrow[i].bits, to_bf16(wide[i]).bits) << begin << " " << i;
      }
    }
  }
}

TEST(Blocks, DecodersOfGgmlBlocksAgreeOnAnyBytes) {
  if (!sys::machine().avx2) GTEST_SKIP() << "no AVX2";
  const bool wide_too = sys::machine().avx512_vnni && sys::machine().avx512_bf16;
  int64_t types = 0;
  for (const bool wider : {false, true}) {
    if (wider && !wide_too) continue;
    for (const GgmlTypeRow& row : ggml_types()) {
      const codes::Codes* codes = wider ? codes::ggml_codes_avx512(row.type)
                                        : codes::codes_avx2({.format = Format::ggml, .ggml = row.type}, false);
      if (!codes) continue;
      ++types;
      // Any bytes, so scales that are NaN and infinite too.
      std::vector<uint8_t> bytes(static_cast<size_t>(64 * 768 / row.values * row.bytes));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 2654435761u) >> 13);
      constexpr int64_t kValues = 64 * 768;
      std::vector<float> want(kValues), wide(kValues);
      std::vector<Bf16> plain(kValues), unit(kValues);
      decode_ggml(row.type, reinterpret_cast<const std::byte*>(bytes.data()), want);
      codes->f32(bytes.data(), 0, kValues, wide.data());
      codes->bf16(bytes.data(), 0, kValues, plain.data());
      codes->bf16_unit(bytes.data(), 0, kValues, unit.data());
      int64_t nans = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        const bool nan = std::isnan(want[i]);
        nans += nan;
        ASSERT_EQ(std::isnan(wide[i]), nan) << row.name << " " << i;
        ASSERT_EQ(std::isnan(to_float(plain[i])), nan) << row.name << " " << i;
        ASSERT_EQ(std::isnan(to_float(unit[i])), nan) << row.name << " " << i;
        if (nan) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(want[i])) << row.name << " " << i;
        ASSERT_EQ(plain[i].bits, to_bf16(want[i]).bits) << row.name << " " << i;
        const bool subnormal = std::fabs(want[i]) < std::numeric_limits<float>::min();
        ASSERT_EQ(unit[i].bits, subnormal && wider ? unit[i].bits & 0x8000 : plain[i].bits) << row.name << " " << i;
      }
      EXPECT_EQ(nans > 0, row.type != GgmlType::mxfp4 && row.type != GgmlType::nvfp4) << row.name;
    }
  }
  EXPECT_EQ(types, wide_too ? 22 : 11);
}

// Every scale with every code, both nibbles, in both types, and windows that end within a block: the definition's bits.
TEST(Blocks, Nvfp4DecodesEveryScaleAndCode) {
  constexpr int64_t kBlocks = 256, kCols = 16 * kBlocks;
  std::vector<uint8_t> codes(kCols / 2);
  std::vector<F8E4M3> scales(kBlocks);
  const auto code_at = [](int64_t c) { return static_cast<int>((c + c / 16 * 3) % 16); };
  for (int64_t c = 0; c < kCols; c += 2)
    codes[static_cast<size_t>(c / 2)] = static_cast<uint8_t>(code_at(c) | code_at(c + 1) << 4);
  for (size_t i = 0; i < scales.size(); ++i) scales[i].bits = static_cast<uint8_t>(i);
  const Weight w{.rows = 1,
                 .cols = kCols,
                 .spec = {Format::nvfp4, 16},
                 .codes = view_of(codes.data(), {1, kCols / 2}),
                 .scales = view_of(scales.data(), {1, kBlocks})};
  for (const auto& [begin, n] : {std::pair<int64_t, int64_t>{0, kCols}, {32, 1}, {16, 23}, {160, 47}}) {
    std::vector<float> wide(static_cast<size_t>(n + 1), 99.0f);
    std::vector<Bf16> narrow(static_cast<size_t>(n + 1), to_bf16(99.0f));
    decode_row(w, 0, begin, n, wide.data());
    decode_row(w, 0, begin, n, narrow.data());
    EXPECT_EQ(wide.back(), 99.0f);
    EXPECT_EQ(to_float(narrow.back()), 99.0f);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t c = begin + i;
      const float scale = to_float(scales[static_cast<size_t>(c / 16)]), want = e2m1_value(code_at(c)) * scale;
      const float got[] = {wide[static_cast<size_t>(i)], to_float(narrow[static_cast<size_t>(i)])};
      for (float v : got) {
        if (std::isnan(scale)) {
          EXPECT_TRUE(std::isnan(v)) << c;
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(v), std::bit_cast<uint32_t>(want)) << c;
        }
      }
    }
  }
}

// A product may decode to BF16 instead of FP32 where the table says that nothing is lost.
TEST(Codecs, WhatIsExactInBf16LosesNothing) {
  for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::f8_e4m3, Format::nvfp4}) {
    const TestWeight w(format, 5, 160, 3);
    int64_t lost = 0;
    std::vector<float> wide(160);
    std::vector<Bf16> narrow(160);
    for (int64_t r = 0; r < 5; ++r) {
      decode_row(w.weight(), r, 0, 160, wide.data());
      decode_row(w.weight(), r, 0, 160, narrow.data());
      for (size_t i = 0; i < wide.size(); ++i) lost += wide[i] != to_float(narrow[i]);
    }
    EXPECT_EQ(lost == 0, codec_of(format).exact_in_bf16) << name_of(format);
  }
}

// Every format of files: what it encodes, decodes and rounds is one set of numbers, and its tensors have its bytes.
TEST(QuantCodecs, EncodeDecodeAndRoundAgree) {
  const TestTensor x(DType::f32, {1, 96}, 7);
  std::vector<float> row(x.view().as<float>(), x.view().as<float>() + 96);
  std::fill(row.begin() + 32, row.begin() + 64, 0.0f);
  const float amax = std::fabs(
      *std::max_element(row.begin(), row.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
  for (const QuantCodec& codec : quant_codecs()) {
    if (!codec.encode) continue;
    SCOPED_TRACE(codec.name);
    const QuantFormat format = *quant_format(codec.name);
    const float global = codec.global ? codec.global(amax, ScaleSearch::max) : 1.0f;
    int64_t bytes = 0;
    for (const StoredPart& part : codec.parts) bytes += part.each * size_of(part.dtype);
    EXPECT_EQ(bytes, codec.code_bytes + codec.scale_bytes);
    for (const ScaleSearch search : {ScaleSearch::max, ScaleSearch::mse}) {
      const BlockCoder coder(format, {global, search});
      std::vector<std::byte> codes(coder.code_bytes(96)), scales(coder.scale_bytes(96)), again = codes, copied = scales;
      coder.encode(row, codes.data(), scales.data());
      std::vector<float> back(96, NAN);
      coder.decode(codes.data(), scales.data(), back);
      std::vector<uint16_t> chosen;
      for (int64_t at = 0; at < 96; at += coder.block()) {
        const std::span<const float> block(&row[static_cast<size_t>(at)], static_cast<size_t>(coder.block()));
        uint16_t scale = 0;
        const auto each = static_cast<size_t>(codec.scale_bytes);
        if (each > 0) std::memcpy(&scale, &scales[static_cast<size_t>(at / coder.block()) * each], each);
        EXPECT_EQ(coder.scale_of(block), scale) << at;
        chosen.push_back(scale);
        for (size_t i = 0; i < block.size(); ++i)
          EXPECT_EQ(coder.rounded(block[i], scale), back[static_cast<size_t>(at) + i]) << at << " " << i;
      }
      coder.encode_with(row, chosen, again.data(), copied.data());
      EXPECT_EQ(again, codes);
      EXPECT_EQ(copied, scales);
      double error = 0, square = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        error += std::pow(row[i] - back[i], 2);
        square += std::pow(row[i], 2);
      }
      EXPECT_LT(error / square, codec.code_bytes == codec.block ? 2e-3 : format == QuantFormat::int3 ? 0.1 : 0.03);
    }
  }
}

}  // namespace
}  // namespace braid
