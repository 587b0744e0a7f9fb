#include "math/panel.h"

#include <algorithm>

#include "codec/codec.h"
#include "math/panel_block.h"
#include "sys/machine.h"

namespace braid {
namespace {

// How much of w is processed at a time. One or two rows of x: as a stream, if w is read in place. Some: 48 columns, so
// that the block and the one being prefetched stay in L2 (192 KiB each with 2048 values of BF16). Many: 144, so that a
// row of x, which comes from L3, is reused often. The rows of a super block share the workspace.
// Which is which: math/thresholds.h.
constexpr int64_t kStreamRows = 2, kSuperRows = 512;
constexpr int64_t kFewCols = kPanelCols, kManyCols = 3 * kPanelCols;
constexpr int64_t kDecodedDepth = 2048;  // at least the depth of any kernel's block

constexpr int64_t kSumBytes = kSuperRows * kManyCols * static_cast<int64_t>(sizeof(float));

// The type a weight has inside the product; with BF16 activations all are rounded to BF16.
DType operand_type(const Weight& w, DType x) {
  return !codec_of(w).exact_in_bf16 && x == DType::f32 ? DType::f32 : DType::bf16;
}
bool in_place(const Weight& w, DType operand) { return codec_of(w).in_place && w.codes.dtype == operand; }

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

// Equal blocks, whose number depends on the depth alone; whole vectors and whole blocks of quantised formats.
int64_t block_depth(int64_t depth, int64_t depth_max) {
  constexpr int64_t kGrain = 32;
  const int64_t blocks = std::max<int64_t>(1, (depth + depth_max - 1) / depth_max);
  return ((depth + blocks - 1) / blocks + kGrain - 1) / kGrain * kGrain;
}

// A part of y: rows of x by rows of w.
struct Part {
  int64_t row, rows, col, cols;
};

void write(const Part& b, const float* sums, float global, const MutView& y) {
  for (int64_t m = 0; m < b.rows; ++m, sums += kManyCols) {
    if (y.dtype == DType::bf16) {
      Bf16* out = y.as<Bf16>(b.row + m) + b.col;
      for (int64_t n = 0; n < b.cols; ++n) out[n] = to_bf16(sums[n] * global);
    } else {
      float* out = y.as<float>(b.row + m) + b.col;
      for (int64_t n = 0; n < b.cols; ++n) out[n] = sums[n] * global;
    }
  }
}

// Bytes. On Zen 5 further and nearer are slower by 5 to 10%; on Zen 4, which lacks AVX-VNNI, one row of x is 1.2 times
// as fast at 2048, two rows are 1.2 times as slow there.
int64_t stream_ahead(int64_t rows) {
  const sys::Machine& m = sys::machine();
  const bool zen4 = m.bf16_dot_fast && !m.avx_vnni;
  return zen4 && rows == 1 ? 2048 : 8192;
}

class PanelProduct {
 public:
  PanelProduct(PanelClass c, const View& x, const Weight& w, std::span<std::byte> workspace, const Thresholds& t)
      : x_(x),
        w_(w),
        stream_rows_(std::min(t.panel_stream_rows, kStreamRows)),
        operand_(operand_type(w, x.dtype)),
        direct_(in_place(w, operand_)),
        kernel_(kernel_for(c, operand_)),
        depth_(block_depth(w.cols, kernel_.depth_max)),
        sums_(reinterpret_cast<float*>(workspace.data())),
        decoded_(workspace.data() + kSumBytes) {}

  const float* sums() const { return sums_; }

  bool streams(int64_t rows) const { return rows <= stream_rows_ && direct_; }

  void compute(const Part& b) {
    if (streams(b.rows)) return stream(b);
    for (int64_t k = 0; k < w_.cols; k += depth_) depth_block(b, k, std::min(depth_, w_.cols - k));
  }

 private:
  const std::byte* weight_at(int64_t row, int64_t k) const {
    return w_.codes.data + (row * w_.codes.stride(0) + k) * size_of(operand_);
  }

  // The block to prefetch while the one at (b.col, k) is computed: the next of the walk. Null at the end.
  const std::byte* next(const Part& b, int64_t k, int64_t depth) const {
    if (!direct_) return nullptr;
    if (k + depth < w_.cols) return weight_at(b.col, k + depth);
    return b.col + b.cols < w_.rows ? weight_at(b.col + b.cols, 0) : nullptr;
  }

  void stream(const Part& b) {
    panel::Stream s;
    s.block.x = x_.data + b.row * x_.stride(0) * size_of(x_.dtype);
    s.block.w = weight_at(b.col, 0);
    s.block.x_stride = x_.stride(0);
    s.block.w_stride = w_.codes.stride(0);
    s.block.rows = b.rows;
    s.block.cols = b.cols;
    s.block.depth = w_.cols;
    s.block.sums = sums_;
    s.block.sums_stride = kManyCols;
    s.depth_part = depth_;
    s.ahead = stream_ahead(b.rows);
    kernel_.stream(s);
  }

  void depth_block(const Part& b, int64_t k, int64_t depth) {
    panel::Block block;
    block.x = x_.data + (b.row * x_.stride(0) + k) * size_of(x_.dtype);
    block.w = direct_ ? weight_at(b.col, k) : decode(b, k, depth);
    block.x_stride = x_.stride(0);
    block.w_stride = direct_ ? w_.codes.stride(0) : kDecodedDepth;
    block.rows = b.rows;
    block.cols = b.cols;
    block.depth = depth;
    block.next_w = next(b, k, depth);
    block.sums = sums_;
    block.sums_stride = kManyCols;
    block.add = k > 0;
    kernel_.run(block);
  }

  const std::byte* decode(const Part& b, int64_t k, int64_t depth) {
    for (int64_t n = 0; n < b.cols; ++n) {
      if (operand_ == DType::bf16) {
        decode_row(w_, b.col + n, k, depth, reinterpret_cast<Bf16*>(decoded_) + n * kDecodedDepth);
      } else {
        decode_row(w_, b.col + n, k, depth, reinterpret_cast<float*>(decoded_) + n * kDecodedDepth);
      }
    }
    return decoded_;
  }

  const View& x_;
  const Weight& w_;
  int64_t stream_rows_;
  DType operand_;
  bool direct_;
  panel::Kernel kernel_;
  int64_t depth_;
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
  constexpr int64_t kDecoded = kManyCols * kDecodedDepth;
  const auto size = static_cast<int64_t>(codec_of(w).exact_in_bf16 ? 2 : 4);
  return kSumBytes + (w.spec.format == Format::bf16 ? 0 : kDecoded * size);
}

void panel_product(PanelClass c, const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace,
                   const Thresholds& t) {
  DCHECK(static_cast<int64_t>(workspace.size()) >= panel_workspace(w), "workspace {}", workspace.size());
  PanelProduct product(c, x, w, workspace, t);
  for (int64_t row = 0; row < x.dim(0); row += kSuperRows) {
    const int64_t rows = std::min(kSuperRows, x.dim(0) - row);
    const int64_t block = rows <= t.panel_few_rows && !product.streams(rows) ? kFewCols : kManyCols;
    for (int64_t col = 0; col < w.rows; col += block) {
      const Part b{row, rows, col, std::min(block, w.rows - col)};
      product.compute(b);
      write(b, product.sums(), w.global, y);
    }
  }
}

}  // namespace braid
