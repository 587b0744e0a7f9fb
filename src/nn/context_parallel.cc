#include "nn/context_parallel.h"

#include <algorithm>
#include <cstring>

#include "comm/group.h"
#include "nn/rank_views.h"
#include "sys/error.h"

namespace braid::nn {

void divide_tokens(const SeqMap& whole, int rank, int ranks, TokenOrder order, ContextShares& shares) {
  shares.whole = &whole;
  shares.pieces.clear();
  shares.own.seqs.clear();
  shares.sequence.clear();
  shares.before.clear();
  shares.after.clear();
  shares.counts.assign(static_cast<size_t>(ranks), 0);
  const int chunks = order == TokenOrder::zigzag ? 2 * ranks : ranks;
  for (size_t i = 0; i < whole.seqs.size(); ++i) {
    const Seq& s = whole.seqs[i];
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int64_t begin = s.len * chunk / chunks, len = s.len * (chunk + 1) / chunks - begin;
      if (len == 0) continue;
      const int owner = std::min(chunk, order == TokenOrder::zigzag ? chunks - 1 - chunk : chunk);
      int64_t& rows = shares.counts[static_cast<size_t>(owner)];
      const bool follows = !shares.pieces.empty() && begin > 0;
      if (follows && shares.pieces.back().rank == rank) shares.after.back() = owner;
      if (owner == rank) {
        shares.before.push_back(follows ? shares.pieces.back().rank : -1);
        shares.after.push_back(-1);
        Seq own = s;
        own.start = rows;
        own.len = len;
        own.pos0 += begin;
        own.slot = std::ssize(shares.own.seqs);
        shares.own.seqs.push_back(own);
        shares.sequence.push_back(i);
      }
      shares.pieces.push_back({.rank = owner, .at = rows, .first = s.start + begin, .len = len, .sequence = i});
      rows += len;
    }
  }
  if (*std::min_element(shares.counts.begin(), shares.counts.end()) > 0) return;
  fail("parallel.cp", {.what = "a part of a batch has too few tokens",
                       .got = std::to_string(whole.tokens()),
                       .expected = fmt::format("some for each of {} ranks", ranks),
                       .hint = "a smaller parallel.cp, or fewer parts with accumulate"});
}

int largest_share(const ContextShares& shares) {
  const auto& counts = shares.counts;
  return static_cast<int>(std::max_element(counts.begin(), counts.end()) - counts.begin());
}

const SeqMap& whole_sequences(const Run& run) { return run.context ? *run.context->whole : run.seqs; }

const Seq& whole_of(const Run& run, const Seq& piece) {
  if (!run.context) return piece;
  return run.context->whole->seqs[run.context->sequence[static_cast<size_t>(&piece - run.seqs.seqs.data())]];
}

Tensor own_tokens(Run& run, const Tensor& x) {
  if (!run.context) return x;
  const ContextShares& shares = *run.context;
  Shape shape = x.shape();
  shape[0] = shares.rows();
  const Tensor own(run.ctx.arena, x.dtype(), shape);
  if (run.ctx.dry) return own;
  for (const ContextShares::Piece& p : shares.pieces) {
    if (p.rank == shares.ranks->rank()) copy_bytes(x.view().slice(0, p.first, p.len), own.mut().slice(0, p.at, p.len));
  }
  return own;
}

HeadColumns::HeadColumns(std::initializer_list<Segment> list) : count(list.size()) {
  CHECK(count <= segments.size(), "{} segments", count);
  std::copy(list.begin(), list.end(), segments.begin());
}

int64_t HeadColumns::width(int rank, int ranks) const {
  int64_t sum = 0;
  for (size_t i = 0; i < count; ++i)
    sum += units_of(segments[i].units, rank, ranks).count * (segments[i].rows / segments[i].units);
  return sum;
}

Range units_of(int64_t units, int rank, int ranks) {
  return {units * rank / ranks, std::max<int64_t>(1, units / ranks)};
}

namespace {

// Copies, between views of one dtype, or adds FP32.
void copy_or_add(const std::byte* from, std::byte* to, int64_t n, DType dtype, bool add) {
  if (!add) {
    std::memcpy(to, from, static_cast<size_t>(n * size_of(dtype)));
    return;
  }
  const auto* x = reinterpret_cast<const float*>(from);
  auto* y = reinterpret_cast<float*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

// One exchange of columns with all ranks: blocks by tokens, [own, width of rank r] for every r, and blocks by heads,
// [rows of rank r, own width].
class Exchange {
 public:
  Exchange(const Run& run, const HeadColumns& columns)
      : shares_(run.context),
        columns_(columns),
        ranks_(run.context->ranks->size()),
        rank_(run.ctx.dry ? largest_share(*run.context) : run.context->ranks->rank()) {}

  int64_t own_width() const { return columns_.width(rank_, ranks_); }
  int64_t all_rows() const { return shares_->whole->tokens(); }
  int64_t own_rows() const { return shares_->rows(); }

  // x [own, C] -> y [T, width]
  void to_heads(Ctx& c, const View& x, const MutView& y) const {
    const Tensor by_tokens(c.arena, x.dtype, {own_rows() * all_widths()}), by_heads(c.arena, x.dtype, {y.count()});
    if (c.dry) return;
    each_block([&](int rank, int64_t at) { columns_of(rank, x, by_tokens.mut(), at, nullptr); });
    const std::vector<int64_t> tokens = token_blocks(), heads = head_blocks();
    shares_->ranks->all_to_all(by_tokens.view(), by_heads.mut(), tokens, heads).wait();
    each_piece([&](int64_t row, int64_t first, int64_t rows) {
      copy_bytes(rows_of(by_heads.mut(), row, rows), rows_of(flat(y), first, rows));
    });
  }

  // y [T, width] -> x [own, C]: the sum over the ranks that share a unit.
  void to_tokens(Ctx& c, const View& y, const MutView& x) const {
    const Tensor by_tokens(c.arena, y.dtype, {own_rows() * all_widths()}), by_heads(c.arena, y.dtype, {y.count()});
    if (c.dry) return;
    each_piece([&](int64_t row, int64_t first, int64_t rows) {
      copy_bytes(rows_of(flat(y), first, rows), rows_of(by_heads.mut(), row, rows));
    });
    const std::vector<int64_t> tokens = token_blocks(), heads = head_blocks();
    shares_->ranks->all_to_all(by_heads.view(), by_tokens.mut(), heads, tokens).wait();
    each_block([&](int rank, int64_t at) { columns_of(rank, {}, by_tokens.mut(), at, &x); });
  }

 private:
  int64_t all_widths() const {
    int64_t sum = 0;
    for (int r = 0; r < ranks_; ++r) sum += columns_.width(r, ranks_);
    return sum;
  }
  std::vector<int64_t> token_blocks() const {
    std::vector<int64_t> list(static_cast<size_t>(ranks_), own_rows());
    for (int r = 0; r < ranks_; ++r) list[static_cast<size_t>(r)] *= columns_.width(r, ranks_);
    return list;
  }
  std::vector<int64_t> head_blocks() const {
    std::vector<int64_t> list = shares_->counts;
    for (int64_t& n : list) n *= own_width();
    return list;
  }
  // of(rank, first element of its block by tokens)
  template <class Of>
  void each_block(Of&& of) const {
    int64_t at = 0;
    for (int r = 0; r < ranks_; ++r) {
      of(r, at);
      at += own_rows() * columns_.width(r, ranks_);
    }
  }
  // of(row in the blocks by heads, row of all, rows)
  template <class Of>
  void each_piece(Of&& of) const {
    std::vector<int64_t> before(shares_->counts.size());
    for (size_t r = 1; r < before.size(); ++r) before[r] = before[r - 1] + shares_->counts[r - 1];
    for (const ContextShares::Piece& p : shares_->pieces)
      of(before[static_cast<size_t>(p.rank)] + p.at, p.first, p.len);
  }
  template <class Of>
  Of rows_of(const Of& v, int64_t row, int64_t rows) const {
    return v.slice(0, row * own_width(), rows * own_width());
  }
  // Between the columns of `rank` in x, or `to`, and its block.
  void columns_of(int rank, const View& x, const MutView& block, int64_t at, const MutView* to) const {
    const int64_t bytes = size_of(block.dtype), width = columns_.width(rank, ranks_);
    for (int64_t row = 0; row < own_rows(); ++row) {
      std::byte* in_block = block.data + (at + row * width) * bytes;
      for (size_t i = 0; i < columns_.count; ++i) {
        const Segment& s = columns_.segments[i];
        const Range units = units_of(s.units, rank, ranks_);
        const int64_t unit = s.rows / s.units, column = s.begin + units.begin * unit, n = units.count * unit;
        if (!to) {
          std::memcpy(in_block, x.data + (row * x.stride(0) + column) * bytes, static_cast<size_t>(n * bytes));
        } else {
          const bool first = rank == 0 || units_of(s.units, rank - 1, ranks_).begin != units.begin;
          copy_or_add(in_block, to->data + (row * to->stride(0) + column) * bytes, n, block.dtype, !first);
        }
        in_block += n * bytes;
      }
    }
  }

  const ContextShares* shares_;
  HeadColumns columns_;
  int ranks_, rank_;
};

}  // namespace

Tensor tokens_to_heads(Run& run, const Tensor& x, const HeadColumns& columns) {
  const Exchange exchange(run, columns);
  const Tensor y(run.ctx.arena, x.dtype(), {exchange.all_rows(), exchange.own_width()});
  taped(
      run.ctx, "tokens_to_heads", {.in = {x}, .out = {y}},
      [x = Ref(x), y = Ref(y), exchange](Ctx& c) { exchange.to_heads(c, x.view(), y.mut()); },
      [x = Ref(x), y = Ref(y), exchange](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y), dx = tape.make_grad(c, x);
        exchange.to_tokens(c, dy.view(), dx.mut());
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor heads_to_tokens(Run& run, const Tensor& y, const HeadColumns& columns) {
  const Exchange exchange(run, columns);
  int64_t width = 0;
  for (size_t i = 0; i < columns.count; ++i) width += columns.segments[i].rows;
  const Tensor x(run.ctx.arena, y.dtype(), {exchange.own_rows(), width});
  taped(
      run.ctx, "heads_to_tokens", {.in = {y}, .out = {x}},
      [y = Ref(y), x = Ref(x), exchange](Ctx& c) { exchange.to_tokens(c, y.view(), x.mut()); },
      [y = Ref(y), x = Ref(x), exchange](Ctx& c, Tape& tape) {
        const Tensor dx = tape.grad(x), dy = tape.make_grad(c, y);
        exchange.to_heads(c, dx.view(), dy.mut());
        tape.add_grad(c, y, dy);
      });
  return x;
}

}  // namespace braid::nn
