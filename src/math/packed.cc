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

// A tile that crosses the edge of y: computed in `whole`, from the values of y, then copied back where it exists.
void edge(const Kernel& kernel, const Tile& t, int64_t rows, int64_t cols) {
  constexpr int64_t kTileMax = 32 * 64;
  alignas(64) float whole[kTileMax] = {};
  Tile inner = t;
  inner.y = whole;
  inner.y_stride = kernel.cols;
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

Kernel block_kernel_of(Class c) { return c == Class::bf16_dot ? narrow_dot_bf16() : kernel_of(c); }

Source along(const View& v) { return source_of(v, true); }
Source across(const View& v) { return source_of(v, false); }

Source from(const Source& s, int64_t i, int64_t k) {
  Source part = s;
  const int64_t elements = s.along ? i * s.stride + k : k * s.stride + i;
  part.data = static_cast<const std::byte*>(s.data) + elements * (s.bf16 ? 2 : 4);
  return part;
}

int64_t block_depth(int64_t depth, int64_t most) {
  constexpr int64_t kGrain = 32;
  const int64_t blocks = std::max<int64_t>(1, (depth + most - 1) / most);
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
  const int64_t depth = round_up(p.depth, kernel.step), panel = depth * kernel.value_bytes;
  const int64_t down = p.m / kernel.rows, across = p.n / kernel.cols;
  const int64_t last_rows = p.m % kernel.rows, last_cols = p.n % kernel.cols;
  const auto tile_at = [&](int64_t m, int64_t n) {
    return Tile{.a = p.a + m * kernel.rows * panel,
                .b = p.b + n * kernel.cols * panel,
                .depth = depth,
                .y = p.y + m * kernel.rows * p.y_stride + n * kernel.cols,
                .y_stride = p.y_stride,
                .add = p.add,
                .ahead = p.ahead};
  };
  Tile whole = tile_at(0, 0);
  whole.down = down, whole.across = across;
  if (down > 0 && across > 0) kernel.tiles(whole);
  for (int64_t m = 0; last_cols > 0 && m < down; ++m) edge(kernel, tile_at(m, across), kernel.rows, last_cols);
  if (last_rows == 0) return;
  const bool half = kernel.halves && 2 * last_rows <= kernel.rows;
  const int64_t fit = half && 2 * last_rows == kernel.rows ? across : 0;  // halves that reach over no edge
  Tile last = tile_at(down, 0);
  last.half = half, last.across = fit;
  if (fit > 0) kernel.tiles(last);
  for (int64_t n = fit; n * kernel.cols < p.n; ++n) {
    Tile over = tile_at(down, n);
    over.half = half;
    edge(kernel, over, last_rows, std::min(kernel.cols, p.n - n * kernel.cols));
  }
}

}  // namespace braid::packed
