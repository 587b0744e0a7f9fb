#include "nn/balance.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "comm/group.h"
#include "kernels/router/router.h"
#include "nn/context_parallel.h"

namespace braid::nn {
namespace {

View flat_of(const View& v) { return {v.data, v.dtype, {v.count()}}; }
MutView flat_of(const MutView& v) { return {v.data, v.dtype, {v.count()}}; }

int64_t row_count(const RouterWatch& watch) { return std::max<int64_t>(1, std::ssize(watch.rows) - 1); }

// The row that has a token.
int64_t row_of(const RouterWatch& watch, int64_t token) {
  if (watch.rows.empty()) return 0;
  return std::upper_bound(watch.rows.begin(), watch.rows.end(), token) - watch.rows.begin() - 1;
}

void add(const int32_t* from, int64_t n, int32_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

// What an expert's count of `counts` [E] weighs: E / (K T).
double scale_of(const int32_t* counts, int64_t experts) {
  const auto slots = std::accumulate(counts, counts + experts, int64_t{0});
  return slots > 0 ? static_cast<double>(experts) / static_cast<double>(slots) : 0;
}

// Choices [E] of each whole sequence, then of each row.
void count_choices(Run& run, RouterWatch::Layer& seen, const View& experts, const MutView& counts) {
  const RouterWatch& watch = *run.routers;
  const SeqMap& whole = whole_sequences(run);
  const int64_t sequences = std::ssize(whole.seqs), count = counts.dim(1);
  std::memset(counts.data, 0, static_cast<size_t>(counts.bytes()));
  for (size_t i = 0; i < run.seqs.seqs.size(); ++i) {
    const Seq& s = run.seqs.seqs[i];
    auto* own = counts.as<int32_t>(static_cast<int64_t>(run.context ? run.context->sequence[i] : i));
    for (int64_t t = s.start; t < s.start + s.len; ++t) {
      for (int64_t j = 0; j < experts.dim(1); ++j) ++own[experts.as<int32_t>(t)[j]];
    }
  }
  const MutView of_sequences = counts.slice(0, 0, sequences);
  if (watch.factors.batch != 0) {
    std::vector<int32_t> all(static_cast<size_t>(count));
    for (int64_t i = 0; i < sequences; ++i) add(counts.as<int32_t>(i), count, all.data());
    const MutView sum = mut_view_of(all.data(), {count});
    if (watch.everyone) watch.everyone->all_reduce(sum, sum).wait();
    add(all.data(), count, seen.known.data());
  }
  if (run.context) run.context->ranks->all_reduce(flat_of(View(of_sequences)), flat_of(of_sequences)).wait();
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t row = row_of(watch, whole.seqs[static_cast<size_t>(i)].start);
    add(counts.as<int32_t>(i), count, counts.as<int32_t>(sequences + row));
  }
}

}  // namespace

void RouterWatch::Layer::resize(int64_t experts, bool with_margins) {
  const auto n = static_cast<size_t>(experts);
  load.resize(n);
  known.resize(n);
  scores.resize(n);
  if (with_margins) margins.resize(n * static_cast<size_t>(kMarginBins));
}

void RouterWatch::clear() {
  for (auto& [number, layer] : layers) {
    for (auto* list : {&layer.load, &layer.known, &layer.margins}) std::fill(list->begin(), list->end(), 0);
    std::fill(layer.scores.begin(), layer.scores.end(), 0);
    layer.sequence = layer.row = layer.z = 0;
    layer.dropped = 0;
  }
}

void balance(Run& run, RouterWatch::Layer& seen, const View& experts, const View& scores, const MutView& factors) {
  const RouterWatch& watch = *run.routers;
  const SeqMap& whole = whole_sequences(run);
  const int64_t sequences = std::ssize(whole.seqs), count = factors.dim(1);
  const Tensor counts(run.ctx.arena, DType::i32, {sequences + row_count(watch), count});
  if (run.ctx.dry) return;
  count_choices(run, seen, experts, counts.mut());
  const int32_t* in_batch = seen.known.data();
  const double batch =
      watch.factors.batch != 0 ? static_cast<double>(watch.factors.batch) * scale_of(in_batch, count) : 0;
  for (int64_t i = 0; i < factors.dim(0); ++i) {
    const int64_t own = run.context ? static_cast<int64_t>(run.context->sequence[static_cast<size_t>(i)]) : i;
    const int64_t row = row_of(watch, whole.seqs[static_cast<size_t>(own)].start);
    const auto *in_sequence = counts.view().as<int32_t>(own), *in_row = counts.view().as<int32_t>(sequences + row);
    const double sequence_scale = scale_of(in_sequence, count), row_scale = scale_of(in_row, count);
    double of_sequence = 0, of_row = 0;
    for (int64_t e = 0; e < count; ++e) {
      const double a = sequence_scale * in_sequence[e], b = row_scale * in_row[e],
                   p = static_cast<double>(scores.as<float>(i)[e]);
      factors.as<float>(i)[e] = static_cast<float>(static_cast<double>(watch.factors.sequence) * a +
                                                   static_cast<double>(watch.factors.row) * b + batch * in_batch[e]);
      of_sequence += a * p;
      of_row += b * p;
    }
    seen.sequence += of_sequence;
    seen.row += of_row;
  }
}

namespace {

// The slots of one expert in a row, as far as they exceed its capacity, are marked.
void mark_excess(std::vector<int32_t>& slots, int64_t capacity, const float* weights, bool drop_last,
                 std::vector<uint8_t>& dropped) {
  if (std::ssize(slots) <= capacity) return;
  const auto key = [&](int32_t slot) { return std::isnan(weights[slot]) ? -1.0f : weights[slot]; };
  if (!drop_last) std::stable_sort(slots.begin(), slots.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
  for (size_t i = static_cast<size_t>(capacity); i < slots.size(); ++i) dropped[static_cast<size_t>(slots[i])] = 1;
}

// Which slots of the tokens [T, K] of all ranks of a context are dropped, row by row.
std::vector<uint8_t> find_excess(const RouterWatch& watch, const View& experts, const View& weights, int64_t count) {
  const int64_t tokens = experts.dim(0), k = experts.dim(1);
  std::vector<uint8_t> dropped(static_cast<size_t>(tokens * k));
  std::vector<std::vector<int32_t>> slots(static_cast<size_t>(count));
  for (int64_t row = 0; row < row_count(watch); ++row) {
    const int64_t first = watch.rows.empty() ? 0 : watch.rows[static_cast<size_t>(row)],
                  end = watch.rows.empty() ? tokens : watch.rows[static_cast<size_t>(row) + 1];
    for (auto& list : slots) list.clear();
    for (int64_t slot = first * k; slot < end * k; ++slot)
      slots[static_cast<size_t>(experts.as<int32_t>()[slot])].push_back(static_cast<int32_t>(slot));
    // A whole number that rounding has raised by a bit is no reason for one more.
    const double most = watch.capacity * static_cast<double>((end - first) * k) / static_cast<double>(count);
    const auto capacity = static_cast<int64_t>(std::min(std::ceil(most * (1 - 1e-12)), 1e15));
    for (auto& list : slots) mark_excess(list, capacity, weights.as<float>(), watch.drop_last, dropped);
  }
  return dropped;
}

// x [own, K] of all ranks that share the tokens: [T, K].
Tensor all_rows(Run& run, const Tensor& x) {
  if (!run.context) return x;
  const ContextShares& shares = *run.context;
  const int64_t k = x.dim(1), tokens = shares.whole->tokens();
  const Tensor landing(run.ctx.arena, x.dtype(), {tokens, k}), all(run.ctx.arena, x.dtype(), {tokens, k});
  if (run.ctx.dry) return all;
  std::vector<int64_t> counts = shares.counts, first{0};
  for (const int64_t n : counts) first.push_back(first.back() + n);
  for (int64_t& n : counts) n *= k;
  shares.ranks->all_gather(flat_of(x.view()), flat_of(landing.mut()), counts).wait();
  for (const ContextShares::Piece& piece : shares.pieces) {
    const View from = landing.view().slice(0, first[static_cast<size_t>(piece.rank)] + piece.at, piece.len);
    std::memcpy(all.mut().slice(0, piece.first, piece.len).data, from.data, static_cast<size_t>(from.bytes()));
  }
  return all;
}

}  // namespace

Tensor within_capacity(Run& run, RouterWatch::Layer& seen, const Tensor& experts, const Tensor& weights,
                       int64_t count) {
  const Tensor kept(run.ctx.arena, DType::i32, experts.shape());
  const Tensor all = all_rows(run, experts), all_weights = all_rows(run, weights);
  if (run.ctx.dry) return kept;
  const int64_t k = experts.dim(1);
  const std::vector<uint8_t> dropped = find_excess(*run.routers, all.view(), all_weights.view(), count);
  // Tokens [at, at + len) of this rank are [first, ...) of all.
  const auto take = [&](int64_t at, int64_t first, int64_t len) {
    for (int64_t i = 0; i < len * k; ++i) {
      const bool drop = dropped[static_cast<size_t>(first * k + i)] != 0;
      kept.mut().as<int32_t>()[at * k + i] = drop ? -1 : experts.view().as<int32_t>()[at * k + i];
      seen.dropped += drop ? 1 : 0;
    }
  };
  if (!run.context) take(0, 0, experts.dim(0));
  for (size_t i = 0; run.context && i < run.context->pieces.size(); ++i) {
    const ContextShares::Piece& piece = run.context->pieces[i];
    if (piece.rank == run.context->ranks->rank()) take(piece.at, piece.first, piece.len);
  }
  return kept;
}

}  // namespace braid::nn
