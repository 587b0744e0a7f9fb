#include "math/panel.h"

#include <algorithm>

#include "math/blocks.h"
#include "math/panel_strips.h"
#include "sys/machine.h"

namespace braid {
namespace {

// Activations of one super block meet every block of weights while that lies in L2, a block of activations every strip
// of weights while that lies in L1. In bytes for kDepth values of BF16: 48 rows 192 KiB, 64 columns 256 KiB.
constexpr int64_t kSuperRows = 512, kBlockRows = 48, kBlockCols = 64;

constexpr int64_t kSumBytes = kSuperRows * kBlockCols * static_cast<int64_t>(sizeof(float));

// The type a weight has inside the product. Every format but F32 and F16 is exact in BF16; with BF16 activations those
// two are rounded as well.
DType operand_type(const Weight& w, DType x) {
  const bool wide = w.spec.format == Format::f32 || w.spec.format == Format::f16;
  return wide && x == DType::f32 ? DType::f32 : DType::bf16;
}
bool in_place(const Weight& w, DType operand) {
  return (w.spec.format == Format::bf16 && operand == DType::bf16) ||
         (w.spec.format == Format::f32 && operand == DType::f32);
}

panel::Kernel kernel_for(PanelClass c, DType operand) {
  switch (c) {
    case PanelClass::f32:
      return operand == DType::f32 ? panel::wide_f32_f32() : panel::wide_f32_bf16();
    case PanelClass::bf16:
      return panel::wide_bf16_bf16();
    case PanelClass::bf16_dot:
      return panel::dot_bf16_bf16();
  }
  return {};
}

struct Block {
  int64_t row, rows, col, cols;
};

void write(const Block& b, const float* sums, float global, const MutView& y) {
  for (int64_t m = 0; m < b.rows; ++m, sums += kBlockCols) {
    if (y.dtype == DType::bf16) {
      Bf16* out = y.as<Bf16>(b.row + m) + b.col;
      for (int64_t n = 0; n < b.cols; ++n) out[n] = to_bf16(sums[n] * global);
    } else {
      float* out = y.as<float>(b.row + m) + b.col;
      for (int64_t n = 0; n < b.cols; ++n) out[n] = sums[n] * global;
    }
  }
}

class Product {
 public:
  Product(PanelClass c, const View& x, const Weight& w, std::span<std::byte> workspace)
      : x_(x),
        w_(w),
        operand_(operand_type(w, x.dtype)),
        direct_(in_place(w, operand_)),
        kernel_(kernel_for(c, operand_)),
        sums_(reinterpret_cast<float*>(workspace.data())),
        decoded_(workspace.data() + kSumBytes) {}

  int64_t strip_cols() const { return kernel_.cols; }
  const float* sums() const { return sums_; }

  // One depth block: w[b.cols, k .. k + depth] meets all rows of the super block.
  void depth_block(const Block& b, int64_t k) {
    const int64_t depth = std::min(panel::kDepth, w_.cols - k);
    const std::byte* w = direct_ ? weight_at(b.col, k) : decode(b, k, depth);
    panel::Strip s;
    s.x_stride = x_.stride(0);
    s.w_stride = direct_ ? w_.codes.stride(0) : panel::kDepth;
    s.depth = depth;
    s.sums_stride = kBlockCols;
    s.add = k > 0;
    const int64_t block_rows = x_.dtype == DType::bf16 ? kBlockRows : kBlockRows / 2;
    const int64_t row_bytes = s.w_stride * size_of(operand_);
    for (int64_t m = 0; m < b.rows; m += block_rows) {
      s.x = x_.data + ((b.row + m) * x_.stride(0) + k) * size_of(x_.dtype);
      s.rows = std::min(block_rows, b.rows - m);
      for (int64_t n = 0; n < b.cols; n += kernel_.cols) {
        s.cols = static_cast<int>(std::min<int64_t>(kernel_.cols, b.cols - n));
        s.w = w + n * row_bytes;
        s.next_w = m == 0 && direct_ ? next(b, n, k) : nullptr;
        s.sums = sums_ + m * kBlockCols + n;
        kernel_.run(s);
      }
    }
  }

 private:
  const std::byte* weight_at(int64_t row, int64_t k) const {
    return w_.codes.data + (row * w_.codes.stride(0) + k) * size_of(operand_);
  }

  // Where the first pass over the weights goes after column n of block b at depth k; null at the end.
  const std::byte* next(const Block& b, int64_t n, int64_t k) const {
    if (n + kernel_.cols < b.cols) return weight_at(b.col + n + kernel_.cols, k);
    if (k + panel::kDepth < w_.cols) return weight_at(b.col, k + panel::kDepth);
    return b.col + b.cols < w_.rows ? weight_at(b.col + b.cols, 0) : nullptr;
  }

  const std::byte* decode(const Block& b, int64_t k, int64_t depth) {
    for (int64_t n = 0; n < b.cols; ++n) {
      if (operand_ == DType::bf16) {
        decode_row(w_, b.col + n, k, depth, reinterpret_cast<Bf16*>(decoded_) + n * panel::kDepth);
      } else {
        decode_row(w_, b.col + n, k, depth, reinterpret_cast<float*>(decoded_) + n * panel::kDepth);
      }
    }
    return decoded_;
  }

  const View& x_;
  const Weight& w_;
  DType operand_;
  bool direct_;
  panel::Kernel kernel_;
  float* sums_;
  std::byte* decoded_;
};

}  // namespace

PanelClass panel_class(DType x) {
  if (x == DType::f32) return PanelClass::f32;
  return sys::machine().bf16_dot_fast ? PanelClass::bf16_dot : PanelClass::bf16;
}

const char* panel_refusal(PanelClass c) {
  return c == PanelClass::bf16_dot && !sys::machine().avx512_bf16 ? "no AVX-512 BF16" : nullptr;
}

int64_t panel_workspace(const Weight& w) {
  constexpr int64_t kDecoded = kBlockCols * panel::kDepth;
  const auto size = static_cast<int64_t>(w.spec.format == Format::f32 || w.spec.format == Format::f16 ? 4 : 2);
  return kSumBytes + (w.spec.format == Format::bf16 ? 0 : kDecoded * size);
}

void panel_product(PanelClass c, const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace) {
  DCHECK(static_cast<int64_t>(workspace.size()) >= panel_workspace(w), "workspace {}", workspace.size());
  Product product(c, x, w, workspace);
  for (int64_t row = 0; row < x.dim(0); row += kSuperRows) {
    const int64_t rows = std::min(kSuperRows, x.dim(0) - row);
    // With few rows a weight is met once: whole rows, one after the other.
    const int64_t block = rows <= kBlockRows ? product.strip_cols() : kBlockCols;
    for (int64_t col = 0; col < w.rows; col += block) {
      const Block b{row, rows, col, std::min(block, w.rows - col)};
      for (int64_t k = 0; k < w.cols; k += panel::kDepth) product.depth_block(b, k);
      write(b, product.sums(), w.global, y);
    }
  }
}

}  // namespace braid
