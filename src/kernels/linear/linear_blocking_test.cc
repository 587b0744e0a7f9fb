// Blockings change the time of training products and no bit; the model's counts are those of the loops, one by one.
#include "kernels/linear/linear_blocking.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/op_sweep.h"
#include "kernels/linear/linear_rows.h"
#include "math/pieces.h"
#include "support/error_of.h"

namespace braid {
namespace {

using packed::Blocking, packed::Class, packed::Way;

constexpr Class kClasses[] = {Class::f32, Class::bf16, Class::bf16_dot, Class::bf16_tile};

// Of the three products with w [rows, cols].
struct Shape3 {
  int64_t tokens, rows, cols;
};

// The operands of the three products of a class.
struct Operands {
  Class c;
  Shape3 s;
  DType type = c == Class::f32 ? DType::f32 : DType::bf16;
  TestTensor x{type, {s.tokens, s.cols}, 1}, w{type, {s.rows, s.cols}, 2}, dy{DType::f32, {s.tokens, s.rows}, 3},
      bias{DType::f32, {s.rows}, 4}, dw{DType::f32, {s.rows, s.cols}, 5};
};

// y, dx, dw and dbias as bytes, with that blocking; y and dx begin as NaN.
std::vector<std::byte> results(const Operands& o, const Blocking* b, int threads, DType y_type) {
  const Shape3& s = o.s;
  std::vector<std::byte> y(static_cast<size_t>(s.tokens * s.rows * size_of(y_type)), std::byte{0xff}),
      dx(static_cast<size_t>(s.tokens * s.cols * size_of(y_type)), std::byte{0xff});
  TestTensor dw = o.dw, dbias = o.bias;
  const auto view = [&](std::vector<std::byte>& bytes, int64_t cols) {
    return MutView(bytes.data(), y_type, {s.tokens, cols});
  };
  Arena arena;
  Ctx ctx{.arena = arena, .threads = threads};
  const auto call = [&](const auto& op) {
    const auto bytes = static_cast<size_t>(linear_packed_workspace(o.c, op, threads));
    std::vector<std::byte> space(bytes + 64, std::byte{0xff});
    linear_packed(o.c, ctx, op, {space.data(), bytes});
    EXPECT_TRUE(std::all_of(space.end() - 64, space.end(), [](std::byte v) { return v == std::byte{0xff}; }));
  };
  const Weight w = dense_weight(o.w.view());
  call(LinearFwd{.x = o.x.view(), .w = w, .bias = o.bias.view(), .y = view(y, s.rows), .train = true, .blocking = b});
  call(LinearBwdData{.dy = o.dy.view(), .w = w, .dx = view(dx, s.cols), .blocking = b});
  call(LinearBwdWeight{.dy = o.dy.view(), .x = o.x.view(), .dw = dw.mut(), .dbias = dbias.mut(), .blocking = b});
  for (const std::vector<std::byte>* bytes : {&dx, &dw.bytes, &dbias.bytes})
    y.insert(y.end(), bytes->begin(), bytes->end());
  return y;
}

// Tasks and depth blocks with rests, one and several; what is prefetched ends before, at and beyond a panel's end.
TEST(Blocking, ChangesNoBit) {
  std::vector<Blocking> space;
  for (const int64_t rows : {32, 96, 512}) {
    for (const int64_t cols : {96, 192}) {
      for (const int64_t depth : {32, 64, 256, 4096}) {
        for (const int64_t ahead : {0, 64, 3072}) space.push_back({rows, cols, depth, ahead});
      }
    }
  }
  for (const Class c : kClasses) {
    if (packed::refusal(c)) continue;
    for (const Shape3& s : {Shape3{1, 1, 1}, {37, 300, 71}, {290, 101, 205}}) {
      const Operands operands{c, s};
      for (const DType y_type : {DType::f32, DType::bf16}) {
        const std::vector<std::byte> want = results(operands, nullptr, 2, y_type);
        for (const Blocking& b : space)
          EXPECT_TRUE(results(operands, &b, 2, y_type) == want)
              << static_cast<int>(c) << " " << s.tokens << " " << text_of(b);
      }
    }
  }
}

// The depth in steps of 32 around S, that many of which are ahead, or a block: less, as many and more than there are.
TEST(Blocking, ShortDepthsHaveTheBitsOfOneBlock) {
  constexpr int64_t kStages = 3, kStep = 32;
  for (const Class c : kClasses) {
    if (packed::refusal(c)) continue;
    const int64_t step_bytes = kStep * 96 * packed::kernel_of(c).value_bytes;
    for (const int64_t n : {int64_t{1}, kStages - 1, kStages, kStages + 1, int64_t{7}}) {
      for (const int64_t odd : {0, 5}) {
        const Operands operands{c, {40 + odd, n * kStep - odd, n * kStep - odd}};
        const std::vector<std::byte> want = results(operands, nullptr, 1, DType::f32);
        for (const int64_t blocks : {int64_t{1}, kStages, kStages + 1}) {
          const Blocking b{.rows = 32, .cols = 96, .depth = blocks * kStep, .ahead = kStages * step_bytes};
          EXPECT_TRUE(results(operands, &b, 1, DType::f32) == want) << static_cast<int>(c) << " " << n << " " << odd;
        }
      }
    }
  }
}

PackedProduct product(Way way, int64_t tokens, int64_t w_rows, int64_t w_cols, Class c = Class::f32) {
  return {.c = c, .way = way, .threads = 1, .tokens = tokens, .w_rows = w_rows, .w_cols = w_cols, .b_bytes = 2};
}

// The loops of linear_packed.cc, adding up what each pass touches.
PackedTraffic count(const packed::Kernel& k, const PackedProduct& p, const Blocking& b) {
  const auto up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  const auto v = static_cast<double>(k.value_bytes);
  const bool weight = p.way == Way::weight;
  std::vector<int64_t> depths;
  if (weight) {
    for_each_run([&](auto&& piece) { for_each_piece(nullptr, p.tokens, piece); }, k.step, b.depth,
                 [&](int64_t, int64_t n) { depths.push_back(n); });
  } else {
    const int64_t block = packed::block_depth(p.depth(), b.depth);
    for (int64_t at = 0; at < p.depth(); at += block) depths.push_back(std::min(block, p.depth() - at));
  }
  PackedTraffic t;
  const auto pass = [&](int64_t rows) {
    for (const int64_t depth : depths) {
      const int64_t n = weight ? p.cols() : rows;
      t.shared_read += static_cast<double>(n * depth * (weight ? p.b_bytes : p.a_bytes));
      t.shared_written += v * static_cast<double>(up(n, weight ? k.cols : k.rows) * up(depth, k.step));
    }
    for (int64_t row = 0; row < rows; row += b.rows) {
      for (int64_t col = 0; col < p.cols(); col += b.cols) {
        const int64_t m = std::min(b.rows, rows - row), n = std::min(b.cols, p.cols() - col);
        for (size_t i = 0; i < depths.size(); ++i) {
          const int64_t depth = depths[i], deep = up(depth, k.step);
          t.own_read += static_cast<double>((weight ? m * p.a_bytes : n * p.b_bytes) * depth);
          t.own_written += v * static_cast<double>((weight ? up(m, k.rows) : up(n, k.cols)) * deep);
          for (int64_t a = 0; a < m; a += k.rows) {
            t.panels_a += v * static_cast<double>(k.rows * deep);
            for (int64_t of_b = 0; of_b < n; of_b += k.cols) {
              t.panels_b += v * static_cast<double>(k.cols * deep);
              t.registers += v * static_cast<double>((k.rows + k.cols) * deep);
              t.tiles += 1;
              t.flops += 2.0 * static_cast<double>(k.rows * k.cols * deep);
              t.sums += 4.0 * static_cast<double>(k.rows * k.cols) * (weight || i > 0 ? 2 : 1);
            }
          }
        }
      }
    }
  };
  if (weight) {
    pass(p.rows());
  } else {
    for (int64_t at = 0; at < p.tokens; at += kPackedTokens) pass(std::min(kPackedTokens, p.tokens - at));
  }
  return t;
}

TEST(Blocking, TrafficIsThatOfTheLoops) {
  const packed::Kernel kernels[] = {packed::kernel_of(Class::f32), packed::soft_tile_bf16()};
  for (const packed::Kernel& k : kernels) {
    for (const Way way : {Way::fwd, Way::data, Way::weight}) {
      for (const auto& [tokens, rows, cols] : {Shape3{70, 130, 45}, {600, 97, 300}, {2300, 33, 64}}) {
        for (const Blocking& b : {Blocking{32, 96, 32, 0}, {64, 192, 256, 64}, {2048, 384, 768, 0}, {96, 96, 512, 0}}) {
          if (way == Way::weight && b.depth < kPieceTokens) continue;
          const PackedProduct p = product(way, tokens, rows, cols);
          const PackedTraffic got = packed_traffic(k, p, b), want = count(k, p, b);
          for (const auto member :
               {&PackedTraffic::shared_read, &PackedTraffic::shared_written, &PackedTraffic::own_read,
                &PackedTraffic::own_written, &PackedTraffic::flops, &PackedTraffic::tiles, &PackedTraffic::registers,
                &PackedTraffic::panels_a, &PackedTraffic::panels_b, &PackedTraffic::sums})
            EXPECT_DOUBLE_EQ(got.*member, want.*member) << tokens << " " << static_cast<int>(way) << " " << text_of(b);
        }
      }
    }
  }
}

// A worse machine is never faster, and none is faster than its arithmetic allows.
TEST(Blocking, ModelIsMonotoneInTheMachine) {
  const packed::Kernel kernel = packed::kernel_of(Class::f32);
  const PackedLimits good;
  for (const Way way : {Way::fwd, Way::data, Way::weight}) {
    const PackedProduct p = product(way, 1024, 3072, 768);
    for (const Blocking& b : blocking_space(p)) {
      const double seconds = packed_seconds(kernel, p, b, good);
      EXPECT_GE(seconds, p.flops() / good.gflops * 1e-9);
      for (const auto member :
           {&PackedLimits::gflops, &PackedLimits::l1_gbs, &PackedLimits::l2_gbs, &PackedLimits::l3_gbs,
            &PackedLimits::memory_gbs, &PackedLimits::pack_gbs, &PackedLimits::l2_bytes, &PackedLimits::l3_bytes}) {
        PackedLimits worse = good;
        worse.*member /= 8;
        if (worse.l3_gbs < worse.memory_gbs || worse.l2_gbs < worse.l3_gbs) continue;  // no such machine
        EXPECT_GE(packed_seconds(kernel, p, b, worse), seconds) << text_of(b);
      }
      PackedProduct two = p;
      two.threads = 2;
      EXPECT_LE(packed_seconds(kernel, two, b, good), seconds);
      EXPECT_GE(2.0001 * packed_seconds(kernel, two, b, good), seconds);
    }
  }
}

TEST(Blocking, SpaceHasNoPointTwiceAndTheModelOrdersIt) {
  const PackedProduct p = product(Way::fwd, 300, 700, 900);
  const std::vector<Blocking> space = blocking_space(p);
  for (const Blocking& b : space) {
    EXPECT_EQ(std::ranges::count(space, b), 1);
    EXPECT_EQ(packed::parse_blocking(text_of(b)), b);
  }
  const PackedLimits limits;
  std::vector<int> order = ranked_blockings(p, space, limits);
  const auto seconds = [&](int i) {
    return packed_seconds(packed::kernel_of(p.c), p, space[static_cast<size_t>(i)], limits);
  };
  EXPECT_TRUE(std::ranges::is_sorted(order, {}, seconds));
  std::ranges::sort(order);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int>(i));
}

TEST(Blocking, NamesAndSizesAreReadStrictly) {
  const packed::ProductKey key = packed::key_of(Class::bf16_tile, Way::weight, 2, 1000, 3072, 768);
  EXPECT_EQ(name_of(key), "packed_tile_weight_1024x3072x768_t2");
  EXPECT_EQ(packed::parse_key(name_of(key)), key);
  EXPECT_EQ(packed::key_of(Class::f32, Way::fwd, 1, 1, 5, 6).tokens, 32);
  EXPECT_EQ(packed::key_of(Class::f32, Way::fwd, 1, 5000, 5, 6).tokens, 2048);
  for (const char* name : {"packed_fwd_1x2x3_t1", "packed_f32_fwd_1x2x3", "packed_f32_fwd_1x2x3_t0", "linear_fwd",
                           "packed_f32_fwd_1x2x3_t1_", "packed_f32_fwd_-1x2x3_t1", "packed_f32_fwd_1x2_t1"})
    EXPECT_FALSE(packed::parse_key(name)) << name;
  const std::map<std::string, std::string> choices = {{name_of(key), "256x768x512_ahead_1024"}, {"linear_fwd", "ref"}};
  const packed::Blockings read = packed::blockings_of(choices);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].first, key);
  EXPECT_EQ(read[0].second, (Blocking{256, 768, 512, 1024}));
  const packed::Blockings later = packed::blockings_of({{name_of(key), "32x96x32"}}, read);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].second, (Blocking{32, 96, 32, 0}));
  for (const char* bad : {"", "256", "256x768", "256x768x500", "257x768x512", "256x100x512", "0x96x32", "4096x96x32",
                          "256x768x512_ahead_", "256x768x512_ahead_65", "256x768x512_ahead_0", "256x768x512x"}) {
    const std::string error = support::error_of([&] { packed::blockings_of({{name_of(key), bad}}, {}, "a profile"); });
    EXPECT_TRUE(error.starts_with("[a profile] packed_tile_weight_1024x3072x768_t2 has no such blocking")) << error;
  }
}

}  // namespace
}  // namespace braid
