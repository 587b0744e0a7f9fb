#include "nn/tensor_parallel.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "comm/group.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/row_dots/row_dots.h"
#include "nn/param_source.h"
#include "nn/rank_views.h"
#include "nn/sequence_parallel.h"

namespace braid::nn {
// A copy, whose gradient is separate from that of x; a stream, so that no plan repeats what ranks do together.
Tensor to_parts(Run& run, comm::Group& ranks, const Tensor& x) {
  if (!run.ctx.tape) return x;
  const Tensor y(run.ctx.arena, x.dtype(), x.shape());
  taped(
      run.ctx, "to_parts", {.in = {x}, .out = {y}, .cost = Cost::stream, .travels = run.overlap},
      [x = Ref(x), y = Ref(y)](Ctx& c) {
        if (!c.dry) copy_bytes(x.view(), y.mut());
      },
      [x = Ref(x), y = Ref(y), ranks = &ranks](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y), dx = tape.make_grad(c, x);
        std::optional<comm::Handle> sum;
        if (!c.dry) sum.emplace(ranks->all_reduce(flat(dy.view()), flat(dx.mut())));
        tape.meanwhile(c);
        if (sum) sum->wait();
        tape.add_grad(c, x, dx);
      });
  return y;
}

namespace {

// Without a tape sums are taken in one order, whatever their number, so that by the row contract a token has the same
// bits in every batch: unless the user has named algorithms by their times.
const char* algorithm_of(const Run& run, const comm::Group& ranks, int64_t bytes) {
  constexpr int64_t kShort = 32 << 10;  // as Group chooses within a node
  return run.ctx.tape || ranks.chooses_by_times() ? "" : bytes <= kShort ? "recursive" : "rabenseifner";
}

}  // namespace

Tensor sum_of_parts(Run& run, comm::Group& ranks, const Tensor& y) {
  const Tensor sum(run.ctx.arena, DType::f32, y.shape());
  taped(
      run.ctx, "sum_of_parts", {.in = {y}, .out = {sum}, .cost = Cost::stream},
      [y = Ref(y), sum = Ref(sum), ranks = &ranks, name = algorithm_of(run, ranks, y.view().bytes())](Ctx& c) {
        if (!c.dry) ranks->all_reduce(flat(y.view()), flat(sum.mut()), comm::Reduction::sum, name).wait();
      },
      [y = Ref(y), sum = Ref(sum)](Ctx& c, Tape& tape) { tape.add_grad(c, y, tape.grad(sum)); });
  return sum;
}

Tensor to_parts(Run& run, const Tensor& x) {
  if (!run.tensor) return x;
  return run.sequence ? gather_to_parts(run, x) : to_parts(run, *run.tensor, x);
}

Tensor sum_of_parts(Run& run, const Tensor& y) {
  if (!run.tensor) return y;
  return run.sequence ? scatter_sum(run, y) : sum_of_parts(run, *run.tensor, y);
}

namespace {

// Ranks that add up a number of each token for every group: these are all `groups`, of which this rank has some.
struct GroupSums {
  comm::Group* ranks;
  int64_t groups, first;
  const char* algorithm;

  // own [T, G] F32, in place.
  void add_up(Ctx& c, const MutView& own) const {
    const int64_t count = own.dim(1);
    const Tensor spread = count == groups ? Tensor() : Tensor(c.arena, DType::f32, {own.dim(0), groups});
    if (c.dry) return;
    const MutView all = spread ? spread.mut() : own;
    if (spread) {
      fill(all, 0);
      copy_rows(own, all.slice(1, first, count));
    }
    ranks->all_reduce(flat(all), flat(all), comm::Reduction::sum, algorithm).wait();
    if (spread) copy_rows(all.slice(1, first, count), own);
  }
};

GroupSums sums_of(const Run& run, const NormAcross& all, int64_t tokens, int64_t own, int64_t channels) {
  const auto bytes = tokens * all.groups * size_of(DType::f32);
  if (!run.sharers) return {run.tensor, all.groups, all.first, algorithm_of(run, *run.tensor, bytes)};
  CHECK(own == 1, "{} groups, of which other ranks have parts", own);
  return {&run.sharers->at(all.channels / channels), 1, 0, ""};
}

// 1 / rms of each group over the channels of all ranks, [T, G] F32. The mean squares of this rank's channels come from
// a norm, whose output nobody reads. Its gradient is part of the norm's. A stream, so that no plan repeats the sum.
Tensor scales_across(Run& run, const Tensor& x, Param& w, const RmsNormOptions& options, const NormAcross& all,
                     const GroupSums& sums, const Tensor& z, const Tensor& unread) {
  const int64_t groups = options.groups, own = x.dim(1) / groups;
  const Tensor scale(run.ctx.arena, DType::f32, {x.dim(0), groups});
  taped(
      run.ctx, "norm_scale", {.in = {x, z}, .out = {scale}, .cost = Cost::stream},
      [x = Ref(x), z = Ref(z), scale = Ref(scale), unread = Ref(unread), &w, options, all, sums, own](Ctx& c) {
        const Tensor y = unread.view() ? Tensor() : Tensor(c.arena, options.out, x.shape());
        braid::run(c, RmsNormFwd{.x = x.view(),
                                 .w = vector_of(w),
                                 .z = z.view(),
                                 .y = y ? y.mut() : unread.mut(),
                                 .rstd = scale.mut(),
                                 .groups = options.groups,
                                 .eps = 0});
        const std::span<float> values(scale.mut().as<float>(), static_cast<size_t>(scale.view().count()));
        if (!c.dry) {
          for (float& v : values) v = static_cast<float>(own) / (v * v);
        }
        sums.add_up(c, scale.mut());
        if (c.dry) return;
        for (float& v : values) v = 1.0f / std::sqrt(v / static_cast<float>(all.channels) + options.eps);
      },
      [](Ctx&, Tape&) {});
  return scale;
}

// The mean over a group's channels of dy t w rstd (kernels/rms_norm/rms_norm.h), of which dy is multiplied by the
// norm's output, computed once more in FP32.
struct NormAcrossBwd {
  View dy{}, x{}, z{}, scale{};
  MutView mean{};
};
void mean_across(Ctx& c, const NormAcrossBwd& op, Param& w, const NormAcross& all, const GroupSums& sums) {
  const Tensor y(c.arena, DType::f32, op.x.shape);
  braid::run(c, RmsNormFwd{.x = op.x, .w = vector_of(w), .z = op.z, .y = y.mut(), .scale = op.scale});
  braid::run(c, RowDots{.a = op.dy, .b = y.view(), .y = flat(op.mean)});
  sums.add_up(c, op.mean);
  for (int64_t t = 0; !c.dry && t < op.mean.dim(0); ++t) *op.mean.as<float>(t) /= static_cast<float>(all.channels);
}

}  // namespace

Tensor rms_norm_across(Run& run, const Tensor& x, Param& w, const RmsNormOptions& options, const NormAcross& all,
                       const Tensor& z) {
  const GroupSums sums = sums_of(run, all, x.dim(0), options.groups, x.dim(1));
  const Tensor y(run.ctx.arena, options.out, x.shape());
  const Tensor scale = scales_across(run, x, w, options, all, sums, z, run.ctx.tape ? Tensor() : y);
  taped(
      run.ctx, "gated_norm",
      {.in = {x, z, scale},
       .out = {y},
       .saved = {x, z, scale},
       .cost = Cost::cheap,
       .trains = static_cast<bool>(w.grad)},
      [x = Ref(x), z = Ref(z), scale = Ref(scale), y = Ref(y), &w, groups = options.groups](Ctx& c) {
        braid::run(c, RmsNormFwd{.x = x.view(),
                                 .w = vector_of(w),
                                 .z = z.view(),
                                 .y = y.mut(),
                                 .scale = scale.view(),
                                 .groups = groups});
      },
      [x = Ref(x), z = Ref(z), scale = Ref(scale), y = Ref(y), &w, all, sums, seqs = &run.rows()](Ctx& c, Tape& tape) {
        Tensor spare;
        const Tensor dy = tape.grad(y), dx = tape.make_grad(c, x), dz = tape.make_grad(c, z),
                     mean(c.arena, DType::f32, scale.shape());
        mean_across(c, {dy.view(), x.view(), z.view(), scale.view(), mean.mut()}, w, all, sums);
        braid::run(c, RmsNormBwd{.dy = dy.view(),
                                 .x = x.view(),
                                 .w = vector_of(w),
                                 .z = z.view(),
                                 .rstd = scale.view(),
                                 .mean = mean.view(),
                                 .dx = dx.mut(),
                                 .dz = dz.mut(),
                                 .dw = vector_grad(c, w, spare),
                                 .seqs = seqs});
        tape.add_grad(c, x, dx);
        tape.add_grad(c, z, dz);
      });
  return y;
}

Tensor gather_columns(Run& run, const Tensor& y, int64_t columns) {
  CHECK(!run.ctx.tape, "columns gathered on a tape");
  const int64_t rows = y.dim(0), ranks = run.tensor->size();
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < ranks; ++rank) counts.push_back(rows * share_of(columns, rank, ranks).count);
  const Tensor all(run.ctx.arena, y.dtype(), {rows, columns}),
      blocks = rows == 1 ? all : Tensor(run.ctx.arena, y.dtype(), {rows * columns});  // rank by rank
  run.tensor->all_gather(flat(y.view()), flat(blocks.mut()), counts).wait();
  if (rows == 1) return all;
  int64_t at = 0;
  for (int64_t rank = 0; rank < ranks; at += counts[static_cast<size_t>(rank++)]) {
    const Range own = share_of(columns, rank, ranks);
    const View block = blocks.view().slice(0, at, rows * own.count);
    copy_rows(View(block.data, block.dtype, {rows, own.count}), all.mut().slice(1, own.begin, own.count));
  }
  return all;
}

namespace {

// The rows of ids that this rank has, from the first of its own; -1: another rank's.
Tensor own_rows(Run& run, const Tensor& ids, int64_t first, int64_t rows) {
  const Tensor own(run.ctx.arena, DType::i32, ids.shape());
  if (run.ctx.dry) return own;
  for (int64_t t = 0; t < ids.dim(0); ++t) {
    const int64_t row = *ids.view().as<int32_t>(t) - first;
    *own.mut().as<int32_t>(t) = static_cast<int32_t>(row >= 0 && row < rows ? row : -1);
  }
  return own;
}

// Calls of(begin, end) for the tokens of each run of rows that this rank has.
template <class Of>
void each_own_run(const View& rows, Of&& of) {
  for (int64_t t = 0; t < rows.dim(0);) {
    int64_t end = t;
    while (end < rows.dim(0) && *rows.as<int32_t>(end) >= 0) ++end;
    if (end > t) of(t, end);
    t = end + 1;
  }
}

}  // namespace

Tensor embedding_part(Run& run, const Tensor& ids, Param& table, int64_t first) {
  const Tensor y(run.ctx.arena, DType::f32, {ids.dim(0), table.value.cols});
  const Tensor rows = own_rows(run, ids, first, table.value.rows);
  taped(
      run.ctx, "embedding",
      {.in = {rows},
       .out = {y},
       .saved_weights = {rows},
       .cost = Cost::stream,
       .trains = static_cast<bool>(table.grad)},
      [rows = Ref(rows), y = Ref(y), &table](Ctx& c) {
        if (c.dry) return;
        fill(y.mut(), 0);
        each_own_run(rows.view(), [&](int64_t begin, int64_t end) {
          braid::run(c, EmbeddingFwd{.ids = rows.view().slice(0, begin, end - begin),
                                     .table = table.value,
                                     .y = y.mut().slice(0, begin, end - begin)});
        });
      },
      [](Ctx&, Tape&) {},
      [rows = Ref(rows), y = Ref(y), &table, padding = table.padding - first](Ctx& c, Tape& tape) {
        const Tensor dy = tape.grad(y);
        if (c.dry) return;
        each_own_run(rows.view(), [&](int64_t begin, int64_t end) {
          braid::run(c, EmbeddingBwd{.ids = rows.view().slice(0, begin, end - begin),
                                     .dy = dy.view().slice(0, begin, end - begin),
                                     .dtable = table.grad,
                                     .padding = padding});
        });
      });
  return sum_of_parts(run, y);
}

namespace {

struct PartOfHead {
  const Param& w;
  int64_t first;
  bool train;
  comm::Group *ranks, *hidden;  // either may be null
};

// Losses and log-sums over the whole vocabulary from those over each rank's part, in place: with m the largest of the
// ranks' log-sums, lse = m + log sum exp(lse_r - m), and every rank's lse_r - loss_r is its share in the target's
// logit.
void combine(comm::Group& ranks, const View& targets, const MutView& loss, const MutView& lse, const MutView& work) {
  const int64_t n = loss.dim(0);
  const MutView top = work.slice(0, 0, n), sums = work.slice(0, n, 2 * n);
  ranks.all_reduce(lse, top, comm::Reduction::max).wait();
  float *sum = sums.as<float>(), *logit = sum + n, *m = top.as<float>(), *l = loss.as<float>(), *s = lse.as<float>();
  for (int64_t t = 0; t < n; ++t) {
    sum[t] = std::exp(s[t] - m[t]);
    logit[t] = *targets.as<int32_t>(t) < 0 ? 0 : s[t] - l[t];
  }
  ranks.all_reduce(sums, sums).wait();
  for (int64_t t = 0; t < n; ++t) {
    s[t] = m[t] + std::log(sum[t]);
    l[t] = *targets.as<int32_t>(t) < 0 ? 0 : s[t] - logit[t];
  }
}

struct HeadViews {
  View x, targets, weight;
  MutView loss, lse, dx;
};

void head_loss_tile(Ctx& c, const PartOfHead& head, const HeadViews& v) {
  const int64_t n = v.x.dim(0), vocab = head.w.value.rows;
  const Tensor logits(c.arena, DType::f32, {n, vocab}), targets(c.arena, DType::i32, {n}),
      work(c.arena, DType::f32, {3 * n});
  if (!c.dry) {
    for (int64_t t = 0; t < n; ++t) {
      const int32_t target = *v.targets.as<int32_t>(t);
      const int64_t row = target - head.first;
      *targets.mut().as<int32_t>(t) = static_cast<int32_t>(target < 0 ? -1 : row >= 0 && row < vocab ? row : vocab);
    }
  }
  braid::run(c, LinearFwd{.x = v.x, .w = head.w.value, .y = logits.mut(), .train = head.train});
  if (head.hidden && !c.dry) head.hidden->all_reduce(flat(logits.view()), flat(logits.mut())).wait();
  braid::run(c, CrossEntropyFwd{.logits = logits.view(), .targets = targets.view(), .loss = v.loss, .lse = v.lse});
  if (head.ranks && !c.dry) combine(*head.ranks, targets.view(), v.loss, v.lse, work.mut());
  if (!v.dx) return;
  const Tensor dlogits(c.arena, DType::f32, {n, vocab});
  braid::run(c, CrossEntropyBwd{.dloss = v.weight,
                                .logits = logits.view(),
                                .targets = targets.view(),
                                .lse = v.lse,
                                .dlogits = dlogits.mut()});
  braid::run(c, LinearBwdData{.dy = dlogits.view(), .w = head.w.value, .dx = v.dx, .wide = v.x.dtype == DType::f32});
  if (head.w.grad) braid::run(c, LinearBwdWeight{.dy = dlogits.view(), .x = v.x, .dw = head.w.grad});
}

void head_loss_tiles(Ctx& c, const PartOfHead& head, const HeadViews& v) {
  constexpr int64_t kTile = 2048;
  const int64_t tokens = v.x.dim(0);
  for (int64_t t = 0; t < tokens; t += kTile) {
    const int64_t n = std::min(kTile, tokens - t);
    head_loss_tile(c, head,
                   {.x = v.x.slice(0, t, n),
                    .targets = v.targets.slice(0, t, n),
                    .weight = v.weight ? v.weight.slice(0, t, n) : View(),
                    .loss = v.loss.slice(0, t, n),
                    .lse = v.lse.slice(0, t, n),
                    .dx = v.dx ? v.dx.slice(0, t, n) : MutView()});
  }
}

}  // namespace

HeadLosses head_loss_part(Run& run, const Tensor& x, Param& w, const Tensor& targets, const Tensor& token_weight,
                          int64_t first) {
  const Shape tokens{x.dim(0)};
  const HeadLosses y{.loss = Tensor(run.ctx.arena, DType::f32, tokens),
                     .lse = Tensor(run.ctx.arena, DType::f32, tokens)};
  const PartOfHead head{w, first, run.numerics.product_class == ProductClass::packed, run.tensor, run.hidden};
  if (!run.ctx.tape) {
    head_loss_tiles(run.ctx, head, {x.view(), targets.view(), {}, y.loss.mut(), y.lse.mut(), {}});
    return y;
  }
  const Tensor dx(run.ctx.arena, DType::f32, x.shape());
  taped(
      run.ctx, "head_loss", {.in = {x, targets, token_weight}, .out = {y.loss, y.lse, dx}, .saved = {dx}, .once = true},
      [x = Ref(x), targets = Ref(targets), weight = Ref(token_weight), loss = Ref(y.loss), lse = Ref(y.lse),
       dx = Ref(dx), head](Ctx& c) {
        head_loss_tiles(c, head, {x.view(), targets.view(), weight.view(), loss.mut(), lse.mut(), dx.mut()});
      },
      [x = Ref(x), dx = Ref(dx)](Ctx& c, Tape& tape) { tape.add_grad(c, x, tape.handle(dx)); });
  return y;
}

}  // namespace braid::nn
