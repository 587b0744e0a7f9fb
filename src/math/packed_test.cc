#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "codec/test_weight.h"
#include "core/op_sweep.h"
#include "core/philox.h"
#include "math/packed_weight.h"
#include "math/panel.h"
#include "math/tile.h"

namespace braid {
namespace {

constexpr PanelClass kClasses[] = {PanelClass::f32, PanelClass::bf16, PanelClass::bf16_dot};

DType x_type(PanelClass c) { return c == PanelClass::f32 ? DType::f32 : DType::bf16; }

// Rows of every block edge: tiles of 6 and 4, blocks of 48, super blocks of 512; depths around a block of 2048.
TEST(Panel, ResultsDoNotDependOnBatchMates) {
  struct Case {
    int64_t rows, cols, depth;
  };
  constexpr Case kCases[] = {{11, 9, 83}, {29, 6, 2050}, {55, 70, 96}, {515, 66, 31}, {6, 5, 4129}};
  for (const PanelClass c : kClasses) {
    if (panel_refusal(c)) continue;
    for (const Case& s : kCases) {
      TestTensor x(x_type(c), {s.rows, s.depth}, 1), w(DType::bf16, {s.cols, s.depth}, 2),
          all(DType::f32, {s.rows, s.cols}, 3), one(DType::f32, {1, 1}, 4);
      const Weight weight = dense_weight(w.view());
      std::vector<std::byte> workspace(static_cast<size_t>(panel_workspace(weight)));
      panel_product(c, x.view(), weight, all.mut(), workspace);
      for (int64_t m = 0; m < s.rows; m += m < s.rows - 7 ? 7 : 1) {
        for (int64_t n = 0; n < s.cols; ++n) {
          panel_product(c, x.view().slice(0, m, 1), weight.rows_of(n, 1), one.mut(), workspace);
          ASSERT_EQ(element(one.view(), 0), element(all.view(), m * s.cols + n)) << s.rows << " " << m << " " << n;
        }
      }
    }
  }
}

// Those of this machine, and tiles in software, so that their panels are tested on any.
std::vector<packed::Kernel> packed_kernels() {
  std::vector<packed::Kernel> kernels = {packed::soft_tile_bf16()};
  for (const packed::Class c :
       {packed::Class::f32, packed::Class::bf16, packed::Class::bf16_dot, packed::Class::bf16_tile}) {
    if (packed::refusal(c)) continue;
    kernels.push_back(packed::kernel_of(c));
    if (c == packed::Class::bf16_dot) kernels.push_back(packed::block_kernel_of(c));
  }
  return kernels;
}

// y [m, n] (+)= a b of that depth, from panels of all of both.
void multiply(const packed::Kernel& kernel, const packed::Source& a, const packed::Source& b, int64_t depth,
              const MutView& y, bool add) {
  const int64_t m = y.dim(0), n = y.dim(1);
  std::vector<std::byte> panels_a(static_cast<size_t>(packed_bytes(kernel, packed::Side::rows, m, depth))),
      panels_b(static_cast<size_t>(packed_bytes(kernel, packed::Side::cols, n, depth)));
  pack(kernel, packed::Side::rows, a, m, depth, panels_a.data());
  pack(kernel, packed::Side::cols, b, n, depth, panels_b.data());
  product(kernel, {.a = panels_a.data(),
                   .b = panels_b.data(),
                   .m = m,
                   .n = n,
                   .depth = depth,
                   .y = y.as<float>(),
                   .y_stride = n,
                   .add = add});
}

// Whole tiles, half ones and edges of narrow tiles: which tile a sum is in changes no bit.
TEST(Packed, NarrowDotsHaveTheBitsOfDots) {
  constexpr packed::Class kDots = packed::Class::bf16_dot;
  if (const char* reason = packed::refusal(kDots)) GTEST_SKIP() << reason;
  for (const int64_t m : {1, 4, 8, 12, 37}) {
    for (const int64_t n : {32, 71, 96}) {
      const TestTensor a(DType::f32, {m, 45}, 1), b(DType::bf16, {n, 45}, 2);
      TestTensor y(DType::f32, {m, n}, 3), want = y;
      fill(y.mut(), NAN);
      multiply(packed::block_kernel_of(kDots), packed::along(a.view()), packed::along(b.view()), 45, y.mut(), false);
      multiply(packed::kernel_of(kDots), packed::along(a.view()), packed::along(b.view()), 45, want.mut(), false);
      EXPECT_EQ(y.bytes, want.bytes) << m << " " << n;
    }
  }
}

TEST(Packed, EveryKernelTakesBothOperandsAlongAndAcross) {
  const int64_t m = 37, n = 71, depth = 45;
  for (const packed::Kernel& kernel : packed_kernels()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const bool lies_along : {false, true}) {
        const auto shape = [&](int64_t i) { return lies_along ? Shape{i, depth} : Shape{depth, i}; };
        const auto source = [&](const View& v) { return lies_along ? packed::along(v) : packed::across(v); };
        TestTensor a(type, shape(m), 1), b(type, shape(n), 2), y(DType::f32, {m, n}, 3), before = y;
        multiply(kernel, source(a.view()), source(b.view()), depth, y.mut(), true);
        const auto at = [&](const TestTensor& t, int64_t i, int64_t k) {
          return element(t.view(), lies_along ? i * depth + k : k * t.shape[1] + i);
        };
        for (int64_t i = 0; i < m * n; ++i) {
          double want = element(before.view(), i);
          for (int64_t k = 0; k < depth; ++k) want += at(a, i / n, k) * at(b, i % n, k);
          EXPECT_NEAR(element(y.view(), i), want, type == DType::bf16 ? 1e-4 : 0.2) << i;
        }
      }
    }
  }
}

// More rows than are packed at a time, columns from the middle, decoded codes over several depth blocks with a factor,
// added or not, in exactly the space that is requested.
TEST(Packed, MultiplyPacksBothOperands) {
  struct Case {
    int64_t rows, depth;
  };
  for (const packed::Kernel& kernel : packed_kernels()) {
    for (const Format format : {Format::f32, Format::bf16, Format::f16, Format::nvfp4}) {
      for (const Case& c : {Case{258, 96}, {3, 1120}}) {
        for (const bool along : {true, false}) {
          const int64_t cols = 96, col = 32, some = 40;
          const TestTensor a(DType::bf16, {c.rows, c.depth}, 1);
          const TestWeight w(format, along ? cols : c.depth, along ? c.depth : cols, 2, 0.05);
          const packed::WeightOperand operand{w.weight(), along};
          const std::vector<double> values = decode(w.weight());
          TestTensor y(DType::f32, {c.rows, some}, 3), before = y;
          for (const bool add : {false, true}) {
            y = before;
            std::vector<std::byte> space(static_cast<size_t>(multiply_bytes(kernel, operand, c.rows, some, c.depth)));
            packed::multiply(kernel,
                             {.a = packed::along(a.view()),
                              .w = operand,
                              .rows = c.rows,
                              .col = col,
                              .cols = some,
                              .depth = c.depth,
                              .y = y.mut().as<float>(),
                              .y_stride = some,
                              .add = add},
                             space);
            for (int64_t i = 0; i < c.rows * some; i += 7) {
              double want = add ? element(before.view(), i) : 0;
              for (int64_t k = 0; k < c.depth; ++k) {
                const int64_t n = col + i % some, at = along ? n * c.depth + k : k * cols + n;
                want += element(a.view(), i / some * c.depth + k) * values[static_cast<size_t>(at)];
              }
              ASSERT_NEAR(element(y.view(), i), want, 0.05) << name_of(format) << add << along << i;
            }
          }
        }
      }
    }
  }
}

// Depth blocks are not longer for a longer depth: space for one is enough for all that are shorter.
TEST(Packed, SpaceIsEnoughForAnyShorterDepth) {
  for (const packed::Kernel& kernel : packed_kernels()) {
    for (int64_t depth = 1, most = 0; depth < 2400; ++depth) {
      const int64_t bytes = multiply_bytes(kernel, {}, 256, 192, depth);
      EXPECT_GE(bytes, most) << depth;
      const int64_t block = packed::block_depth(depth);
      EXPECT_GE(bytes, packed_bytes(kernel, packed::Side::rows, 256, block) +
                           packed_bytes(kernel, packed::Side::cols, 192, block));
      most = std::max(most, bytes);
    }
  }
}

// On machines with AVX-512 BF16: the panels of tiles, packed fast, are those packed element by element.
TEST(Packed, FastTilePanelsEqualThoseOfTheLoops) {
  const char* refused = packed::refusal(packed::Class::bf16_dot);  // nullptr: it runs
  if (refused && refused == std::string_view("no AVX-512 BF16")) GTEST_SKIP() << refused;
  struct Case {
    int64_t n, depth;
  };
  const packed::Kernel soft = packed::soft_tile_bf16(), fast = packed::tile_bf16();
  for (const Case& c : {Case{1, 1}, {37, 45}, {32, 32}, {64, 96}, {16, 33}, {65, 31}, {33, 64}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const bool lies_along : {false, true}) {
        const TestTensor a(type, lies_along ? Shape{c.n, c.depth} : Shape{c.depth, c.n}, 1);
        const packed::Source source = lies_along ? packed::along(a.view()) : packed::across(a.view());
        for (const packed::Side side : {packed::Side::rows, packed::Side::cols}) {
          std::vector<std::byte> one(static_cast<size_t>(packed_bytes(soft, side, c.n, c.depth))), other = one;
          std::fill(other.begin(), other.end(), std::byte{0x7f});
          pack(soft, side, source, c.n, c.depth, one.data());
          pack(fast, side, source, c.n, c.depth, other.data());
          EXPECT_EQ(one, other) << c.n << " " << c.depth << " " << lies_along << " " << static_cast<int>(side);
        }
      }
    }
  }
}

// The sums of an element are one chain: neither the edge of y nor the cut of the depth changes a bit, nor what is
// prefetched.
TEST(Packed, EdgesAndCutsOfTheDepthChangeNoBit) {
  const int64_t n = 96, depth = 1088;
  for (const packed::Kernel& kernel : packed_kernels()) {
    const TestTensor a(DType::bf16, {n, depth}, 1), b(DType::bf16, {n, depth}, 2);
    const auto product_of = [&](int64_t rows, int64_t cols, int64_t cut, int64_t ahead = 0) {
      TestTensor y(DType::f32, {n, n}, 3);
      for (int64_t k = 0; k < depth; k += cut) {
        const int64_t part = std::min(cut, depth - k);
        std::vector<std::byte> panels_a(static_cast<size_t>(packed_bytes(kernel, packed::Side::rows, rows, part))),
            panels_b(static_cast<size_t>(packed_bytes(kernel, packed::Side::cols, cols, part)));
        pack(kernel, packed::Side::rows, packed::from(packed::along(a.view()), 0, k), rows, part, panels_a.data());
        pack(kernel, packed::Side::cols, packed::from(packed::along(b.view()), 0, k), cols, part, panels_b.data());
        product(kernel, {.a = panels_a.data(),
                         .b = panels_b.data(),
                         .m = rows,
                         .n = cols,
                         .depth = part,
                         .y = y.mut().as<float>(),
                         .y_stride = n,
                         .add = true,
                         .ahead = ahead});
      }
      return y;
    };
    const TestTensor whole = product_of(n, n, depth);
    for (const int64_t cut : {32, 256, 544}) {
      for (const int64_t ahead : {0, 64, 3072}) EXPECT_EQ(product_of(n, n, cut, ahead).bytes, whole.bytes) << cut;
    }
    const TestTensor before(DType::f32, {n, n}, 3);
    for (const auto& [rows, cols] : {std::pair{45, 71}, {48, 64}, {80, 33}, {16, 96}, {3, 32}}) {
      const TestTensor part = product_of(rows, cols, depth);
      for (int64_t i = 0; i < n * n; ++i) {
        const bool inside = i / n < rows && i % n < cols;
        ASSERT_EQ(element(part.view(), i), element((inside ? whole : before).view(), i)) << rows << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace braid
