#include "math/packed.h"

#include <cstring>

#include "sys/machine.h"

namespace braid::packed {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

Source source_of(const View& v, bool along) {
  CHECK(v.rows_contiguous() && (v.dtype == DType::f32 || v.dtype == DType::bf16), "{} operand", name_of(v.dtype));
  return {.data = v.data, .stride = v.stride(0), .bf16 = v.dtype == DType::bf16, .along = along};
}

// A tile that reaches over the edge of y: whole in `whole`, from what y has, then the part that exists back.
void edge(const Kernel& kernel, const Tile& t, int64_t rows, int64_t cols) {
  constexpr int64_t kTileMax = 32 * 64;
  alignas(64) float whole[kTileMax] = {};
  Tile inner = t;
  inner.y = whole;
  inner.y_stride = kernel.cols;
  inner.count = 1;
  const auto bytes = static_cast<size_t>(cols) * sizeof(float);
  for (int64_t m = 0; t.add && m < rows; ++m) std::memcpy(whole + m * kernel.cols, t.y + m * t.y_stride, bytes);
  kernel.tiles(inner);
  for (int64_t m = 0; m < rows; ++m) std::memcpy(t.y + m * t.y_stride, whole + m * kernel.cols, bytes);
}

}  // namespace

const char* refusal(Class c) {
  const sys::Machine& machine = sys::machine();
  if (c == Class::bf16_tile) return machine.amx ? nullptr : "no tiles";
  if (c == Class::bf16_dot && !machine.avx512_bf16) return "no AVX-512 BF16";
  return c == Class::bf16_dot && !machine.bf16_dot_fast ? "slower than FP32 here" : nullptr;
}

Kernel kernel_of(Class c) {
  switch (c) {
    case Class::f32:
      return wide_f32();
    case Class::bf16:
      return wide_bf16();
    case Class::bf16_dot:
      return dot_bf16();
    case Class::bf16_tile:
      return tile_bf16();
  }
  return {};
}

Source along(const View& v) { return source_of(v, true); }
Source across(const View& v) { return source_of(v, false); }

Source from(const Source& s, int64_t i, int64_t k) {
  Source part = s;
  const int64_t elements = s.along ? i * s.stride + k : k * s.stride + i;
  part.data = static_cast<const std::byte*>(s.data) + elements * (s.bf16 ? 2 : 4);
  return part;
}

int64_t block_depth(int64_t depth) {
  constexpr int64_t kGrain = 32;
  const int64_t blocks = std::max<int64_t>(1, (depth + kDepthMax - 1) / kDepthMax);
  return round_up((depth + blocks - 1) / blocks, kGrain);
}

int64_t packed_bytes(const Kernel& kernel, Side side, int64_t n, int64_t depth) {
  return round_up(n, side == Side::rows ? kernel.rows : kernel.cols) * round_up(depth, kernel.step) *
         kernel.value_bytes;
}

void pack(const Kernel& kernel, Side side, const Source& source, int64_t n, int64_t depth, std::byte* out) {
  const bool rows = side == Side::rows;
  (rows ? kernel.pack_rows : kernel.pack_cols)(source, rows ? kernel.rows : kernel.cols, n, depth, out);
}

void Whole::pack_panels(const Source& source, int64_t begin, int64_t end) const {
  const int64_t first = begin * width(), last = std::min(end * width(), n);
  for (int64_t k = 0; k < depth && first < last; k += block) {
    pack(kernel, side, from(source, first, k), last - first, depth_at(k), at(first, k));
  }
}

void product(const Kernel& kernel, const Product& p) {
  Tile t;
  t.depth = round_up(p.depth, kernel.step);
  t.y_stride = p.y_stride;
  t.add = p.add;
  const int64_t a_panel = kernel.rows * t.depth * kernel.value_bytes,
                b_panel = kernel.cols * t.depth * kernel.value_bytes;
  for (int64_t m = 0; m < p.m; m += kernel.rows) {
    t.a = p.a + m / kernel.rows * a_panel;
    const int64_t rows = std::min(kernel.rows, p.m - m);
    t.half = kernel.halves && rows <= kernel.rows / 2;
    const int64_t whole = rows == (t.half ? kernel.rows / 2 : kernel.rows) ? p.n / kernel.cols : 0;
    t.b = p.b;
    t.y = p.y + m * p.y_stride;
    t.count = whole;
    if (whole > 0) kernel.tiles(t);
    for (int64_t n = whole * kernel.cols; n < p.n; n += kernel.cols) {
      t.b = p.b + n / kernel.cols * b_panel;
      t.y = p.y + m * p.y_stride + n;
      edge(kernel, t, rows, std::min(kernel.cols, p.n - n));
    }
  }
}

}  // namespace braid::packed
