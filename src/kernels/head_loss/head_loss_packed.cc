// head_loss on packed operands. Whole pieces of the token grid are processed together, up to 128 MiB of logits; the
// grouping changes no bit. Then, for each such group:
//
//   logits   tasks over the vocabulary, each packs its own rows of w
//            (of distill_loss those of the teacher's head, too, in a second buffer)
//   rows     the loss of a token and its dlogits, in place of the logits (as BF16 in half the space)
//   dx, dw   super block by super block of the vocabulary, so that the dlogits packed for dx stay in L3: tasks for
//   dx
//            add the next depth blocks, tasks for dw add the group's pieces to their part of dw in order

#include "kernels/head_loss/distill_rows.h"
#include "math/packed.h"
#include "math/packed_weight.h"
#include "math/pieces.h"

namespace braid {
namespace {

using packed::Side;

constexpr int64_t kLogitBytes = int64_t{128} << 20, kGroupMax = 2048;
constexpr int64_t kLogitCols = 96;                   // of the vocabulary in one task
constexpr int64_t kSuperBlocks = 8;                  // depth blocks of dx in a super block
constexpr int64_t kGradRows = 128, kGradCols = 768;  // of dw in one task
constexpr int64_t kManyThreads = 4, kFewRows = 128;  // rows of dx in one task where there are many threads

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Rows [first, first + rows) of the batch, made of whole pieces.
struct Group {
  int64_t first = 0, rows = 0;
  int64_t padded = 0;  // rows of pieces that are padded one by one
};

template <class Body>
void for_each_group(const HeadLoss& op, int64_t rows_max, int64_t step, Body&& body) {
  Group group;
  for_each_piece(op.seqs, op.x.dim(0), [&](int64_t first, int64_t n) {
    if (group.rows + n > rows_max) {
      body(group);
      group = {.first = first};
    }
    group.rows += n;
    group.padded += (n + step - 1) / step * step;
  });
  if (group.rows > 0) body(group);
}

class HeadRun {
 public:
  HeadRun(packed::Class c, const HeadProblem& op, int threads)
      : op_(op),
        kernel_(packed::kernel_of(c)),
        bf16_(c != packed::Class::f32),
        threads_(threads),
        vocab_(op.w.rows),
        depth_(op.w.cols),
        padded_((vocab_ + kLogitGrain - 1) / kLogitGrain * kLogitGrain) {
    const int64_t fit = kLogitBytes / (padded_ * (op.teacher_x ? 8 : 4)) / kPieceTokens * kPieceTokens;
    rows_max_ = std::min(std::clamp(fit, kPieceTokens, kGroupMax), op.x.dim(0));
    vocab_block_ = packed::block_depth(vocab_);
    dx_cols_ = 384 / kernel_.value_bytes;
    x_.kernel = dlogits_.kernel = kernel_;
    x_.n = dlogits_.n = rows_max_;
    x_.depth = depth_;
    x_.block = packed::block_depth(depth_);
    teacher_x_ = x_;
    teacher_x_.depth = op.teacher_w.cols;
    if (op.teacher_x) teacher_x_.block = packed::block_depth(teacher_x_.depth);
    dlogits_.depth = std::min(vocab_, kSuperBlocks * vocab_block_);
    dlogits_.block = vocab_block_;
  }

  int64_t workspace() {
    const int64_t bytes = lay_out(nullptr);
    return bytes + threads_ * own_bytes();
  }

  void run(std::span<std::byte> workspace) {
    lay_out(workspace.data());
    for_each_group(op_, rows_max_, kernel_.step, [&](const Group& group) { run_group(group); });
  }

 private:
  // Parts of the workspace that all threads share; returns their bytes.
  int64_t lay_out(std::byte* base) {
    int64_t at = 0;
    const auto take = [&](int64_t bytes) {
      std::byte* const part = base ? base + at : nullptr;
      at += aligned(bytes);
      return part;
    };
    logits_ = reinterpret_cast<float*>(take(rows_max_ * padded_ * 4));
    x_.data = take(x_.bytes());
    if (op_.teacher_x) {
      teacher_logits_ = reinterpret_cast<float*>(take(rows_max_ * padded_ * 4));
      teacher_x_.data = take(teacher_x_.bytes());
    }
    if (op_.dw) {
      int64_t padded = 0;
      for_each_group(op_, rows_max_, kernel_.step, [&](const Group& g) { padded = std::max(padded, g.padded); });
      x_pieces_ = take(packed_bytes(kernel_, Side::cols, depth_, padded));
    }
    if (op_.dx) dlogits_.data = take(dlogits_.bytes());
    if (op_.dx && op_.dx.dtype != DType::f32) dx_sums_ = reinterpret_cast<float*>(take(rows_max_ * depth_ * 4));
    own_ = base ? base + at : nullptr;
    return at;
  }
  int64_t panel_bytes() const {
    return aligned(std::max({packed_bytes(kernel_, Side::cols, kLogitCols, std::max(x_.block, teacher_x_.block)),
                             packed_bytes(kernel_, Side::cols, dx_cols_, vocab_block_),
                             packed_bytes(kernel_, Side::rows, kGradRows, std::max(kPieceTokens, kernel_.chain))}));
  }
  // Panels, and the decoded values of a quantised weight.
  int64_t own_bytes() const {
    int64_t scratch = std::max(packed::scratch_bytes({op_.w, true}, kLogitCols, x_.block),
                               packed::scratch_bytes({op_.w, false}, dx_cols_, vocab_block_));
    if (op_.teacher_x)
      scratch = std::max(scratch, packed::scratch_bytes({op_.teacher_w, true}, kLogitCols, teacher_x_.block));
    return panel_bytes() + scratch;
  }

  void tasks(int64_t n, sys::FunctionRef<void(int64_t, std::byte*)> body) const {
    sys::parallel_tasks(threads_, n, [&](int thread, int64_t i) { body(i, own_ + thread * own_bytes()); });
  }

  void run_group(const Group& group) {
    x_.n = teacher_x_.n = dlogits_.n = group.rows;
    all_logits(group, op_.x, x_, op_.w, logits_);
    if (op_.teacher_x) all_logits(group, op_.teacher_x, teacher_x_, op_.teacher_w, teacher_logits_);
    sys::parallel_for(threads_, group.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        op_.distills ? taught_row(group.first + t, t) : row(group.first + t, logits_ + t * padded_);
      }
    });
    if (op_.dw) pack_pieces(group);
    if (op_.dx || op_.dw) gradients(group);
  }

  void all_logits(const Group& group, const View& from, const packed::Whole& x, const Weight& w, float* out) const {
    const packed::Source rows = packed::from(packed::along(from), group.first, 0);
    sys::parallel_for(threads_, x.panels(), 1, [&](int64_t begin, int64_t end) { x.pack_panels(rows, begin, end); });
    tasks((vocab_ + kLogitCols - 1) / kLogitCols,
          [&](int64_t i, std::byte* own) { logits(i * kLogitCols, x, w, out, own); });
  }

  void logits(int64_t v, const packed::Whole& x, const Weight& w, float* out, std::byte* own) const {
    packed::Product p{.m = x.n, .n = std::min(kLogitCols, vocab_ - v)};
    p.b = own;
    p.y = out + v;
    p.y_stride = padded_;
    for (int64_t k = 0; k < x.depth; k += x.block) {
      p.a = x.at(0, k);
      p.depth = x.depth_at(k);
      p.add = k > 0;
      packed::pack(kernel_, {w, true}, {.i = v, .n = p.n, .k = k, .depth = p.depth}, own + panel_bytes(), own);
      packed::product(kernel_, p);
    }
    packed::scale(w.global, p.m, p.n, p.y, p.y_stride);
  }

  void row(int64_t t, float* logits) const {
    const LogitRow r{.logits = logits,
                     .vocab = vocab_,
                     .padded = padded_,
                     .target = *op_.targets.as<int32_t>(t),
                     .weight = op_.token_weight ? *op_.token_weight.as<float>(t) : 1.0f,
                     .z = op_.z};
    const TokenLoss result = head_loss_row(r, op_.dx || op_.dw, bf16_);
    if (op_.loss) *op_.loss.as<float>(t) = result.loss;
    if (op_.lse) *op_.lse.as<float>(t) = result.lse;
  }

  // Token t of the batch, row `at` of the group.
  void taught_row(int64_t t, int64_t at) const {
    DistillRow r{.logits = logits_ + at * padded_,
                 .teacher = teacher_logits_ ? teacher_logits_ + at * padded_ : nullptr,
                 .vocab = vocab_,
                 .padded = padded_,
                 .target = *op_.targets.as<int32_t>(t),
                 .weight = op_.token_weight ? *op_.token_weight.as<float>(t) : 1.0f,
                 .temperature = op_.temperature,
                 .kl_weight = op_.kl_weight,
                 .ce_weight = op_.ce_weight};
    if (op_.top_ids) {
      r.ids = op_.top_ids.as<int32_t>(t);
      r.logprobs = op_.top_logprobs.as<float>(t);
      r.entries = op_.top_ids.dim(1);
    }
    const DistillTokenLoss result = distill_row(r, op_.dx || op_.dw, bf16_);
    *op_.loss.as<float>(t) = result.kl;
    if (op_.ce) *op_.ce.as<float>(t) = result.ce;
  }

  // body(first, rows, its packed x) for every piece of the group, or for runs of them.
  template <class Body>
  void for_each_run_of(const Group& group, Body&& body) const {
    std::byte* x = x_pieces_;
    const auto pieces = [&](auto&& piece) {
      for_each_piece(op_.seqs, op_.x.dim(0), [&](int64_t first, int64_t n) {
        if (first >= group.first && first < group.first + group.rows) piece(first, n);
      });
    };
    for_each_run(pieces, kernel_.step, kernel_.chain, [&](int64_t first, int64_t n) {
      body(first, n, x);
      x += packed_bytes(kernel_, Side::cols, depth_, n);
    });
  }

  void pack_pieces(const Group& group) const {
    const packed::Source x = packed::across(op_.x);
    sys::parallel_for(threads_, (depth_ + kernel_.cols - 1) / kernel_.cols, 1, [&](int64_t begin, int64_t end) {
      const int64_t col = begin * kernel_.cols, last = std::min(end * kernel_.cols, depth_);
      for_each_run_of(group, [&](int64_t first, int64_t n, std::byte* out) {
        packed::pack(kernel_, Side::cols, packed::from(x, col, first), last - col, n,
                     out + packed_bytes(kernel_, Side::cols, col, n));
      });
    });
  }

  // dlogits from token `t` of the group and entry `v` of the vocabulary on.
  packed::Source dlogits_from(int64_t t, int64_t v, bool along) const {
    const packed::Source all{.data = logits_, .stride = bf16_ ? 2 * padded_ : padded_, .bf16 = bf16_, .along = along};
    return along ? packed::from(all, t, v) : packed::from(all, v, t);
  }

  void gradients(const Group& group) {
    const int64_t rows = threads_ > kManyThreads ? kFewRows : group.rows;
    const int64_t dx_rows = (group.rows + rows - 1) / rows, dx_cols = (depth_ + dx_cols_ - 1) / dx_cols_;
    const int64_t grad_cols = kGradCols / kernel_.cols * kernel_.cols, dw_cols = (depth_ + grad_cols - 1) / grad_cols;
    const int64_t dx_tasks = op_.dx ? dx_rows * dx_cols : 0;
    for (int64_t v = 0; v < vocab_; v += kSuperBlocks * vocab_block_) {
      dlogits_.depth = std::min(vocab_ - v, kSuperBlocks * vocab_block_);
      if (op_.dx) {
        const packed::Source from = dlogits_from(0, v, true);
        sys::parallel_for(threads_, dlogits_.panels(), 1,
                          [&](int64_t begin, int64_t end) { dlogits_.pack_panels(from, begin, end); });
      }
      const int64_t dw_tasks = op_.dw ? (dlogits_.depth + kGradRows - 1) / kGradRows * dw_cols : 0;
      tasks(dx_tasks + dw_tasks, [&](int64_t i, std::byte* own) {
        if (i < dx_tasks) return dx_part(group, v, i % dx_rows * rows, rows, i / dx_rows * dx_cols_, own);
        const int64_t part = i - dx_tasks;
        dw_part(group, v + part / dw_cols * kGradRows, std::min(v + dlogits_.depth, vocab_), part % dw_cols * grad_cols,
                own);
      });
    }
    if (op_.dx && dx_sums_) {
      sys::parallel_for(threads_, group.rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          packed::finish(dx_sums_ + t * depth_, nullptr, depth_, op_.dx.as<Bf16>(group.first + t));
        }
      });
    }
  }

  // The super block's part of dx.
  void dx_part(const Group& group, int64_t v, int64_t row, int64_t rows, int64_t col, std::byte* own) const {
    packed::Product p{.m = std::min(rows, group.rows - row), .n = std::min(dx_cols_, depth_ - col)};
    p.b = own;
    p.y = dx_sums_ ? dx_sums_ + row * depth_ + col : op_.dx.as<float>(group.first + row) + col;
    p.y_stride = dx_sums_ ? depth_ : op_.dx.stride(0);
    for (int64_t k = 0; k < dlogits_.depth; k += vocab_block_) {
      p.a = dlogits_.at(row, k);
      p.depth = dlogits_.depth_at(k);
      p.add = v + k > 0;
      packed::pack(kernel_, {op_.w, false}, {.i = col, .n = p.n, .k = v + k, .depth = p.depth}, own + panel_bytes(),
                   own);
      packed::product(kernel_, p);
    }
    if (v + dlogits_.depth == vocab_) packed::scale(op_.w.global, p.m, p.n, p.y, p.y_stride);
  }

  // Rows [v, min(v + kGradRows, end)) of dw from column `col` on.
  void dw_part(const Group& group, int64_t v, int64_t end, int64_t col, std::byte* own) const {
    const int64_t grad_cols = kGradCols / kernel_.cols * kernel_.cols;
    packed::Product p{.a = own, .m = std::min(kGradRows, end - v), .n = std::min(grad_cols, depth_ - col)};
    p.y = op_.dw.as<float>(v) + col;
    p.y_stride = op_.dw.stride(0);
    p.add = true;
    for_each_run_of(group, [&](int64_t first, int64_t n, const std::byte* x) {
      p.b = x + packed_bytes(kernel_, Side::cols, col, n);
      p.depth = n;
      packed::pack(kernel_, Side::rows, dlogits_from(first - group.first, v, false), p.m, n, own);
      packed::product(kernel_, p);
    });
  }

  const HeadProblem& op_;
  packed::Kernel kernel_;
  bool bf16_;
  int threads_;
  int64_t vocab_, depth_, padded_;
  int64_t rows_max_ = 0, vocab_block_ = 0, dx_cols_ = 0;
  packed::Whole x_, teacher_x_, dlogits_;
  float *logits_ = nullptr, *teacher_logits_ = nullptr;
  std::byte* x_pieces_ = nullptr;
  float* dx_sums_ = nullptr;
  std::byte* own_ = nullptr;
};

int team_of(const HeadLoss& op, int threads) { return sys::team_for(threads, op.flops()); }

}  // namespace

const char* head_loss_packed_supports(packed::Class c, const HeadProblem& op) {
  if (op.x.dtype != DType::f32 && op.x.dtype != DType::bf16) return "x is not F32 or BF16";
  if ((op.x.dtype == DType::f32) != (c == packed::Class::f32)) return "x has another type";
  if (op.teacher_x && (op.teacher_x.dtype != op.x.dtype || !op.teacher_x.rows_contiguous()))
    return "the teacher's x has another type, or strided rows";
  if (!op.x.rows_contiguous() || (op.dx && !op.dx.rows_contiguous())) return "strided rows";
  if (op.dw && !op.dw.rows_contiguous()) return "strided rows";
  return packed::refusal(c);
}

int64_t head_loss_packed_workspace(packed::Class c, const HeadProblem& op, int threads) {
  return HeadRun(c, op, threads).workspace();
}

void head_loss_packed(packed::Class c, Ctx& ctx, const HeadProblem& op, std::span<std::byte> workspace) {
  HeadRun(c, op, team_of(op, ctx.threads)).run(workspace);
}

}  // namespace braid
