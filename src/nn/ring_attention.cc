#include "nn/ring_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "comm/group.h"
#include "kernels/add/add.h"
#include "kernels/attention/attention.h"
#include "nn/rank_views.h"

namespace braid::nn {
namespace {

// Pieces of this rank's queries and of another rank's keys that meet in one call: no piece is in it twice.
struct Meeting {
  SeqMap queries{}, keys{};

  void add(const Seq& query, const Seq& key) {
    queries.seqs.push_back(query);
    keys.seqs.push_back(key);
  }
  // A rank has at most two pieces of a sequence.
  bool has(const Seq& query, const Seq& key) const {
    for (size_t i = keys.seqs.size(), n = 0; i-- > 0 && n < 2; ++n) {
      if (queries.seqs[i].start == query.start || keys.seqs[i].start == key.start) return true;
    }
    return false;
  }
};

std::array<Meeting, 2> meetings(const ContextShares& shares, int source) {
  std::array<Meeting, 2> list;
  size_t first = 0;  // of this rank's pieces of the current sequence
  for (const ContextShares::Piece& p : shares.pieces) {
    if (p.rank != source) continue;
    const Seq& whole = shares.whole->seqs[p.sequence];
    const Seq key{.start = p.at, .len = p.len, .pos0 = whole.pos0 + p.first - whole.start};
    while (first < shares.sequence.size() && shares.sequence[first] < p.sequence) ++first;
    for (size_t i = first; i < shares.sequence.size() && shares.sequence[i] == p.sequence; ++i) {
      const Seq& query = shares.own.seqs[i];
      if (key.pos0 <= query.pos0) list[list[0].has(query, key) ? 1 : 0].add(query, key);
    }
  }
  return list;
}

// Keys, values and what else goes around, two buffers each: of the rank whose turn it is, and of the next.
class Ring {
 public:
  Ring(Ctx& c, const ContextShares& shares)
      : shares_(shares),
        ranks_(shares.ranks->size()),
        rank_(c.dry ? largest_share(shares) : shares.ranks->rank()),
        most_(*std::max_element(shares.counts.begin(), shares.counts.end())) {}

  int steps() const { return ranks_; }
  int64_t most() const { return most_; }  // rows of any rank
  int source(int step) const { return (rank_ - step + ranks_) % ranks_; }
  int64_t rows(int step) const { return shares_.counts[static_cast<size_t>(source(step))]; }

  // Starts to pass what `now` has of the source of `step`; `next` receives that of step + 1.
  void start(int step, std::initializer_list<std::pair<View, MutView>> arrays) {
    for (const auto& [now, next] : arrays) {
      handles_.push_back(shares_.ranks->send(flat(View(now.slice(0, 0, rows(step)))), (rank_ + 1) % ranks_));
      handles_.push_back(
          shares_.ranks->recv(flat(MutView(next.slice(0, 0, rows(step + 1)))), (rank_ + ranks_ - 1) % ranks_));
    }
  }
  void wait() {
    for (comm::Handle& h : handles_) h.wait();
    handles_.clear();
  }

 private:
  const ContextShares& shares_;
  int ranks_, rank_;
  int64_t most_;
  std::vector<comm::Handle> handles_;
};

View as_page(const View& v) { return {v.data, v.dtype, {1, v.dim(0), v.dim(1), v.dim(2)}}; }

// y and lse of both parts of the keys, for the rows of `seqs`.
void merge(const SeqMap& seqs, const View& part, const View& part_lse, const MutView& y, const MutView& lse) {
  const int64_t heads = y.dim(1), width = y.dim(2);
  for (const Seq& s : seqs.seqs) {
    for (int64_t i = s.start * heads; i < (s.start + s.len) * heads; ++i) {
      float& own = lse.as<float>()[i];
      const float other = part_lse.as<float>()[i], top = std::max(own, other);
      const float sum = top + std::log(std::exp(own - top) + std::exp(other - top));
      const float a = std::exp(own - sum), b = std::exp(other - sum);
      float* to = y.as<float>() + i * width;
      const float* from = part.as<float>() + i * width;
      for (int64_t p = 0; p < width; ++p) to[p] = a * to[p] + b * from[p];
      own = sum;
    }
  }
}

// Adds the rows of `seqs`.
void add_rows(const SeqMap& seqs, const View& from, const MutView& to) {
  const int64_t width = to.dim(1) * to.dim(2);
  for (const Seq& s : seqs.seqs) {
    const float* x = from.as<float>() + s.start * width;
    float* y = to.as<float>() + s.start * width;
    for (int64_t i = 0; i < s.len * width; ++i) y[i] += x[i];
  }
}

struct RingForward {
  View q, k, v;
  MutView y, lse;  // F32
};

void forward(Ctx& c, const ContextShares& shares, const RingForward& f, float scale) {
  Ring ring(c, shares);
  const Shape rows{ring.most(), f.k.dim(1), f.k.dim(2)};
  Tensor k(c.arena, f.k.dtype, rows), v(c.arena, f.v.dtype, rows), next_k(c.arena, f.k.dtype, rows),
      next_v(c.arena, f.v.dtype, rows);
  const Tensor part(c.arena, DType::f32, f.y.shape), part_lse(c.arena, DType::f32, f.lse.shape);
  if (!c.dry) {
    copy_bytes(f.k, k.mut());
    copy_bytes(f.v, v.mut());
    fill(f.y, 0);
    fill(f.lse, -INFINITY);
  }
  for (int step = 0; step < ring.steps(); ++step) {
    const bool more = step + 1 < ring.steps() && !c.dry;
    if (more) ring.start(step, {{k.view(), next_k.mut()}, {v.view(), next_v.mut()}});
    for (const Meeting& m : meetings(shares, ring.source(step))) {
      if (m.queries.seqs.empty()) continue;
      braid::run(c, AttentionFwd{.q = f.q,
                                 .k_pages = as_page(k.view()),
                                 .v_pages = as_page(v.view()),
                                 .y = part.mut(),
                                 .lse = part_lse.mut(),
                                 .seqs = &m.queries,
                                 .keys = &m.keys,
                                 .scale = scale});
      if (!c.dry) merge(m.queries, part.view(), part_lse.view(), f.y, f.lse);
    }
    if (more) ring.wait();
    std::swap(k, next_k);
    std::swap(v, next_v);
  }
}

struct RingBackward {
  View dy, q, k, v, y, lse;
  MutView dq, dk, dv;
};

void backward(Ctx& c, const ContextShares& shares, const RingBackward& b, float scale) {
  Ring ring(c, shares);
  const Shape rows{ring.most(), b.k.dim(1), b.k.dim(2)};
  const auto buffer = [&](DType type) { return Tensor(c.arena, type, rows); };
  Tensor k = buffer(b.k.dtype), v = buffer(b.v.dtype), next_k = buffer(b.k.dtype), next_v = buffer(b.v.dtype),
         dk = buffer(DType::f32), dv = buffer(DType::f32), next_dk = buffer(DType::f32), next_dv = buffer(DType::f32);
  const Tensor part_dk = buffer(DType::f32), part_dv = buffer(DType::f32), part_dq(c.arena, DType::f32, b.dq.shape);
  if (!c.dry) {
    copy_bytes(b.k, k.mut());
    copy_bytes(b.v, v.mut());
    for (const MutView& zero : {b.dq, dk.mut(), dv.mut()}) fill(zero, 0);
  }
  for (int step = 0; step < ring.steps(); ++step) {
    const bool more = step + 1 < ring.steps() && !c.dry;
    if (more) ring.start(step, {{k.view(), next_k.mut()}, {v.view(), next_v.mut()}});
    for (const Meeting& m : meetings(shares, ring.source(step))) {
      if (m.queries.seqs.empty()) continue;
      braid::run(c, AttentionBwd{.dy = b.dy,
                                 .q = b.q,
                                 .k = k.view(),
                                 .v = v.view(),
                                 .y = b.y,
                                 .lse = b.lse,
                                 .dq = part_dq.mut(),
                                 .dk = part_dk.mut(),
                                 .dv = part_dv.mut(),
                                 .seqs = &m.queries,
                                 .keys = &m.keys,
                                 .scale = scale});
      if (c.dry) continue;
      add_rows(m.queries, part_dq.view(), b.dq);
      add_rows(m.keys, part_dk.view(), dk.mut());
      add_rows(m.keys, part_dv.view(), dv.mut());
    }
    if (c.dry) continue;
    if (more) ring.wait();
    ring.start(step, {{dk.view(), next_dk.mut()}, {dv.view(), next_dv.mut()}});  // the last time: home
    ring.wait();
    std::swap(k, next_k);
    std::swap(v, next_v);
    std::swap(dk, next_dk);
    std::swap(dv, next_dv);
  }
  if (c.dry) return;
  copy_bytes(dk.view().slice(0, 0, b.dk.dim(0)), b.dk);
  copy_bytes(dv.view().slice(0, 0, b.dv.dim(0)), b.dv);
}

}  // namespace

Tensor ring_attention(Run& run, const Tensor& q, const Tensor& k, const Tensor& v, float scale) {
  const Tensor y(run.ctx.arena, run.numerics.products, q.shape()), lse(run.ctx.arena, DType::f32, {q.dim(0), q.dim(1)});
  taped(
      run.ctx, "attention", {.in = {q, k, v}, .out = {y, lse}, .saved = {q, k, v, y, lse}},
      [q = Ref(q), k = Ref(k), v = Ref(v), y = Ref(y), lse = Ref(lse), shares = run.context, scale](Ctx& c) {
        const Tensor sum = y.mut().dtype == DType::f32 ? Tensor() : Tensor(c.arena, DType::f32, y.shape());
        const MutView to = sum ? sum.mut() : y.mut();
        forward(c, *shares, {q.view(), k.view(), v.view(), to, lse.mut()}, scale);
        if (sum) {
          const Shape flat_rows{y.shape()[0], y.shape()[1] * y.shape()[2]};
          braid::run(c,
                     AddFwd{.b = sum.reshaped(flat_rows).view(), .y = MutView(y.mut().data, y.mut().dtype, flat_rows)});
        }
      },
      [q = Ref(q), k = Ref(k), v = Ref(v), y = Ref(y), lse = Ref(lse), shares = run.context, scale](Ctx& c,
                                                                                                    Tape& tape) {
        const Tensor dq = tape.make_grad(c, q), dk = tape.make_grad(c, k), dv = tape.make_grad(c, v);
        backward(
            c, *shares,
            {tape.grad(y).view(), q.view(), k.view(), v.view(), y.view(), lse.view(), dq.mut(), dk.mut(), dv.mut()},
            scale);
        tape.add_grad(c, q, dq);
        tape.add_grad(c, k, dk);
        tape.add_grad(c, v, dv);
      });
  return y;
}

}  // namespace braid::nn
