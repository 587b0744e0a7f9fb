#include "nn/sequence_parallel.h"

#include <algorithm>

#include "comm/group.h"
#include "nn/rank_views.h"
#include "sys/error.h"

namespace braid::nn {

void take_rows(const SeqMap& seqs, int64_t begin, int64_t count, SeqMap& out) {
  out.seqs.clear();
  for (const Seq& s : seqs.seqs) {
    const int64_t first = std::max(begin, s.start), last = std::min(begin + count, s.start + s.len);
    if (first >= last) continue;
    Seq own = s;
    own.start = first - begin;
    own.len = last - first;
    own.pos0 += first - s.start;
    out.seqs.push_back(own);
  }
}

void share_rows(const SeqMap& seqs, int rank, int ranks, SequenceShares& shares) {
  const int64_t rows = seqs.tokens();
  if (rows < ranks) {
    fail("parallel.sp", {.what = "a part of a batch has too few tokens",
                         .got = std::to_string(rows),
                         .expected = fmt::format("at least one for each of {} ranks", ranks),
                         .hint = "parallel.sp=false"});
  }
  shares.counts.clear();
  int64_t begin = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t count = rows / ranks + (r < rows % ranks ? 1 : 0);
    if (r == rank) take_rows(seqs, begin, count, shares.own);
    shares.counts.push_back(count);
    begin += count;
  }
}

namespace {

// In elements, for rows of `width`.
class Counts {
 public:
  Counts(const Run& run, int64_t width) : group_(run.tensor), shares_(run.sequence), width_(width) {}

  int64_t own() const { return shares_->own.tokens(); }
  int64_t all() const { return run_rows_before(group_->size()); }
  int64_t first() const { return run_rows_before(group_->rank()); }  // of this rank's rows

  void gather(const View& own, const MutView& all) const { group_->all_gather(own, all, elements()).wait(); }
  void scatter_sum(const View& all, const MutView& own) const {
    group_->reduce_scatter(all, own, comm::Reduction::sum, elements()).wait();
  }

 private:
  int64_t run_rows_before(int rank) const {
    int64_t rows = 0;
    for (int r = 0; r < rank; ++r) rows += shares_->counts[static_cast<size_t>(r)];
    return rows;
  }
  std::vector<int64_t> elements() const {
    std::vector<int64_t> list = shares_->counts;
    for (int64_t& n : list) n *= width_;
    return list;
  }

  comm::Group* group_;
  const SequenceShares* shares_;
  int64_t width_;
};

// Gradients: the sum over ranks, or what every rank has.
Tensor gather(Run& run, const Tensor& x, bool parts) {
  const Counts counts(run, x.dim(1));
  const Tensor y(run.ctx.arena, x.dtype(), {counts.all(), x.dim(1)});
  taped(
      run.ctx, "gather_rows",
      {.in = {x}, .out = {y}, .saved = {x}, .cost = Cost::stream, .again = run.ctx.tape && run.ctx.tape->needs_grad(x)},
      [x = Ref(x), y = Ref(y), counts](Ctx& c) {
        if (!c.dry) counts.gather(flat(x.view()), flat(y.mut()));
      },
      [x = Ref(x), y = Ref(y), counts, parts](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y), dx = tape.make_grad(c, x);
        if (!c.dry && parts) counts.scatter_sum(flat(dy.view()), flat(dx.mut()));
        if (!c.dry && !parts) copy_bytes(dy.view().slice(0, counts.first(), counts.own()), dx.mut());
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor scatter(Run& run, const Tensor& y, bool parts) {
  const Counts counts(run, y.dim(1));
  const Tensor own(run.ctx.arena, DType::f32, {counts.own(), y.dim(1)});
  taped(
      run.ctx, "scatter_rows", {.in = {y}, .out = {own}, .cost = Cost::stream},
      [y = Ref(y), own = Ref(own), counts, parts](Ctx& c) {
        if (c.dry) return;
        if (parts) counts.scatter_sum(flat(y.view()), flat(own.mut()));
        if (!parts) copy_bytes(y.view().slice(0, counts.first(), counts.own()), own.mut());
      },
      [y = Ref(y), own = Ref(own), counts](Ctx& c, Tape& tape) {
        const Tensor downs = tape.grad(own), dy = tape.make_grad(c, y);
        if (!c.dry) counts.gather(flat(downs.view()), flat(dy.mut()));
        tape.add_grad(c, y, dy);
      });
  return own;
}

}  // namespace

Tensor gather_to_parts(Run& run, const Tensor& x) { return gather(run, x, true); }
Tensor scatter_sum(Run& run, const Tensor& y) { return scatter(run, y, true); }
Tensor gather_to_copies(Run& run, const Tensor& x) { return gather(run, x, false); }
Tensor own_rows(Run& run, const Tensor& y) { return scatter(run, y, false); }

}  // namespace braid::nn
