// The router's statistics and backward, in FP32, one token at a time. Statistics are summed in FP64 over the token grid
// of math/pieces.h, the pieces in order: the same bits on any number of threads and for any cut of a batch between
// sequences.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/router/router_rows.h"
#include "math/pieces.h"

namespace braid {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Piece {
  int64_t start, len, sequence;
  double z;
  double* scores;  // [E], of statistics
};

struct Scratch {
  Piece* pieces;
  double* sums;  // [pieces, E], of statistics
  float* own;    // one part per thread: scores [E]
  int64_t bytes;
};

Scratch cut(const View& logits, const SeqMap* seqs, int threads, bool statistics, std::byte* base) {
  const int64_t tokens = logits.dim(0), count = logits.dim(1);
  const int64_t pieces = tokens / kPieceTokens + (seqs ? static_cast<int64_t>(seqs->seqs.size()) : 1);
  Scratch s{};
  const auto take = [&](int64_t bytes) {
    std::byte* p = base ? base + s.bytes : nullptr;
    s.bytes += aligned(bytes);
    return p;
  };
  s.pieces = reinterpret_cast<Piece*>(take(pieces * static_cast<int64_t>(sizeof(Piece))));
  s.sums = reinterpret_cast<double*>(take(statistics ? pieces * count * 8 : 0));
  s.own = reinterpret_cast<float*>(take(threads * count * 4));
  return s;
}

// Pieces in order, each with its sequence. Returns how many.
int64_t list_pieces(const View& logits, const SeqMap* seqs, const Scratch& s) {
  int64_t pieces = 0, sequence = 0;
  const auto end_of = [&](int64_t i) {
    const Seq& seq = seqs->seqs[static_cast<size_t>(i)];
    return seq.start + seq.len;
  };
  for_each_piece(seqs, logits.dim(0), [&](int64_t start, int64_t len) {
    while (seqs && start >= end_of(sequence)) ++sequence;
    s.pieces[pieces] = {
        .start = start, .len = len, .sequence = sequence, .z = 0, .scores = s.sums + pieces * logits.dim(1)};
    ++pieces;
  });
  return pieces;
}

void check_experts(const char* name, const View& experts, int64_t count) {
  for (int64_t t = 0; t < experts.dim(0); ++t) {
    for (int64_t j = 0; j < experts.dim(1); ++j) {
      const int32_t e = experts.as<int32_t>(t)[j];
      CHECK(e >= 0 && e < count, "{}: token {} has expert {} of {}", name, t, e, count);
    }
  }
}

float logsumexp(const float* logits, int64_t count) {
  const float top = *std::max_element(logits, logits + count);
  float sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += std::exp(logits[e] - top);
  return top + std::log(sum);
}

float total(const float* scores, int64_t count) {
  double sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += static_cast<double>(scores[e]);
  return static_cast<float>(sum);
}

float weighted(const float* scores, const float* factors, int64_t count) {
  double sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += static_cast<double>(scores[e]) * static_cast<double>(factors[e]);
  return static_cast<float>(sum);
}

// ds of the chosen experts: through the weights.
void chosen_gradient(const RouterBwd& op, int64_t t, const float* scores, float* ds) {
  const int64_t k = op.experts.dim(1);
  const int32_t* experts = op.experts.as<int32_t>(t);
  const float* dweights = op.dweights.as<float>(t);
  float sum = 1e-20f, used = 0;
  for (int64_t j = 0; j < k; ++j) {
    sum += scores[experts[j]];
    used += dweights[j] * scores[experts[j]];
  }
  const float divisor = op.normalise ? sum : 1, mean = op.normalise ? used / sum : 0;
  for (int64_t j = 0; j < k; ++j) ds[experts[j]] += op.scale * (dweights[j] - mean) / divisor;
}

// `factors` [E] of the balance of its sequence, or null.
void token_gradient(const RouterBwd& op, int64_t t, const float* factors, float* scores) {
  const int64_t count = op.logits.dim(1);
  const float* logits = op.logits.as<float>(t);
  float* ds = op.dlogits.as<float>(t);
  router_scores(logits, count, op.kind, scores);
  std::fill_n(ds, count, 0.0f);
  if (factors) {
    const float sum = total(scores, count), mean = weighted(scores, factors, count) / sum;
    for (int64_t e = 0; e < count; ++e) ds[e] = (factors[e] - mean) / sum;
  }
  chosen_gradient(op, t, scores, ds);
  if (op.kind == RouterKind::softmax) {
    double inner = 0;
    for (int64_t e = 0; e < count; ++e) inner += static_cast<double>(ds[e]) * static_cast<double>(scores[e]);
    for (int64_t e = 0; e < count; ++e) ds[e] = scores[e] * (ds[e] - static_cast<float>(inner));
  } else {
    for (int64_t e = 0; e < count; ++e) ds[e] *= scores[e] * (1 - scores[e]);
  }
  if (op.z == 0) return;
  const float lse = logsumexp(logits, count), factor = 2 * op.z * lse;
  for (int64_t e = 0; e < count; ++e) ds[e] += factor * std::exp(logits[e] - lse);
}

}  // namespace

int64_t router_stats_cpu_workspace(const RouterStats& op, int threads) {
  return cut(op.logits, op.seqs, threads, true, nullptr).bytes;
}
int64_t router_bwd_cpu_workspace(const RouterBwd& op, int threads) {
  return cut(op.logits, op.seqs, threads, false, nullptr).bytes;
}

void router_stats_cpu(Ctx& ctx, const RouterStats& op, std::span<std::byte> workspace) {
  const int64_t count = op.logits.dim(1);
  const Scratch s = cut(op.logits, op.seqs, ctx.threads, true, workspace.data());
  check_experts(op.name, op.experts, count);
  const int64_t pieces = list_pieces(op.logits, op.seqs, s);
  sys::parallel(static_cast<int>(std::clamp<int64_t>(pieces, 1, ctx.threads)), [&](int thread, int team) {
    float* scores = s.own + thread * count;
    for (int64_t i = thread; i < pieces; i += team) {
      Piece& piece = s.pieces[i];
      std::fill_n(piece.scores, count, 0.0);
      for (int64_t t = piece.start; t < piece.start + piece.len; ++t) {
        const float* logits = op.logits.as<float>(t);
        router_scores(logits, count, op.kind, scores);
        const float lse = logsumexp(logits, count), sum = total(scores, count);
        for (int64_t e = 0; e < count; ++e) piece.scores[e] += static_cast<double>(scores[e] / sum);
        piece.z += static_cast<double>(lse) * static_cast<double>(lse);
      }
    }
  });
  int64_t next = 0;
  for (int64_t i = 0; i < op.scores.dim(0); ++i) {
    const int64_t first = next;
    double z = 0;
    for (; next < pieces && s.pieces[next].sequence == i; ++next) {
      z += s.pieces[next].z;
      for (int64_t e = 0; next > first && e < count; ++e) s.pieces[first].scores[e] += s.pieces[next].scores[e];
    }
    for (int64_t e = 0; e < count; ++e)
      op.scores.as<float>(i)[e] = next > first ? static_cast<float>(s.pieces[first].scores[e]) : 0;
    op.z.as<float>()[i] = static_cast<float>(z);
  }
  for (int64_t t = 0; t < op.experts.dim(0); ++t) {
    for (int64_t j = 0; j < op.experts.dim(1); ++j) ++op.load.as<int32_t>()[op.experts.as<int32_t>(t)[j]];
  }
}

void router_bwd_cpu(Ctx& ctx, const RouterBwd& op, std::span<std::byte> workspace) {
  const int64_t count = op.logits.dim(1);
  const Scratch s = cut(op.logits, op.seqs, ctx.threads, false, workspace.data());
  check_experts(op.name, op.experts, count);
  const int64_t pieces = list_pieces(op.logits, op.seqs, s);
  sys::parallel(static_cast<int>(std::clamp<int64_t>(pieces, 1, ctx.threads)), [&](int thread, int team) {
    float* scores = s.own + thread * count;
    for (int64_t i = thread; i < pieces; i += team) {
      const Piece& piece = s.pieces[i];
      const float* factors = op.factors ? op.factors.as<float>(piece.sequence) : nullptr;
      for (int64_t t = piece.start; t < piece.start + piece.len; ++t) token_gradient(op, t, factors, scores);
    }
  });
}

}  // namespace braid
