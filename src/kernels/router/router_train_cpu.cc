// The router's statistics and backward, in FP32, one token at a time. The loads of each sequence come first, since the
// balance loss of a token needs them; then tokens are independent. Losses are summed in FP64 over the token grid of
// math/pieces.h, the pieces in order: the same bits on any number of threads and for any cut of a batch between
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
  double balance, z;
};

struct Scratch {
  const int32_t* whole;  // [S, E]: of sequences of which these are pieces, or `load`
  int32_t* load;         // [S, E]
  Piece* pieces;
  float* own;  // one part per thread: scores [E]
  int64_t sequences, bytes;
};

Scratch cut(const View& logits, const SeqMap* seqs, int threads, std::byte* base) {
  const int64_t tokens = logits.dim(0), count = logits.dim(1);
  Scratch s{};
  s.sequences = seqs ? static_cast<int64_t>(seqs->seqs.size()) : 1;
  const auto take = [&](int64_t bytes) {
    std::byte* p = base ? base + s.bytes : nullptr;
    s.bytes += aligned(bytes);
    return p;
  };
  s.load = reinterpret_cast<int32_t*>(take(s.sequences * count * 4));
  s.pieces =
      reinterpret_cast<Piece*>(take((tokens / kPieceTokens + s.sequences) * static_cast<int64_t>(sizeof(Piece))));
  s.own = reinterpret_cast<float*>(take(threads * count * 4));
  return s;
}

// The tokens of each sequence that chose each expert.
template <class Op>
void count_load(const Op& op, Scratch& s) {
  const View& experts = op.experts;
  const int64_t count = op.logits.dim(1);
  const SeqMap* seqs = op.seqs;
  s.whole = op.counts ? op.counts.template as<int32_t>() : s.load;
  std::fill_n(s.load, s.sequences * count, 0);
  for (int64_t i = 0; i < s.sequences; ++i) {
    const int64_t start = seqs ? seqs->seqs[static_cast<size_t>(i)].start : 0;
    const int64_t len = seqs ? seqs->seqs[static_cast<size_t>(i)].len : experts.dim(0);
    for (int64_t t = start; t < start + len; ++t) {
      for (int64_t j = 0; j < experts.dim(1); ++j) {
        const int32_t e = experts.as<int32_t>(t)[j];
        CHECK(e >= 0 && e < count, "{}: token {} has expert {} of {}", op.name, t, e, count);
        ++s.load[i * count + e];
      }
    }
  }
}

// K T of a sequence.
int64_t slots_of(const Scratch& s, int64_t sequence, int64_t count) {
  return std::accumulate(s.whole + sequence * count, s.whole + (sequence + 1) * count, int64_t{0});
}

// Pieces in order, each with its sequence. Returns how many.
int64_t list_pieces(const SeqMap* seqs, int64_t tokens, const Scratch& s) {
  int64_t pieces = 0, sequence = 0;
  const auto end_of = [&](int64_t i) {
    const Seq& seq = seqs->seqs[static_cast<size_t>(i)];
    return seq.start + seq.len;
  };
  for_each_piece(seqs, tokens, [&](int64_t start, int64_t len) {
    while (seqs && start >= end_of(sequence)) ++sequence;
    s.pieces[pieces++] = {.start = start, .len = len, .sequence = sequence, .balance = 0, .z = 0};
  });
  return pieces;
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

float weighted(const float* scores, const int32_t* load, int64_t count) {
  double sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += static_cast<double>(scores[e]) * load[e];
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

void token_gradient(const RouterBwd& op, int64_t t, const int32_t* load, int64_t slots, float* scores) {
  const int64_t count = op.logits.dim(1);
  const float* logits = op.logits.as<float>(t);
  float* ds = op.dlogits.as<float>(t);
  router_scores(logits, count, op.kind, scores);
  std::fill_n(ds, count, 0.0f);
  if (op.balance != 0) {
    const float sum = total(scores, count), mean = weighted(scores, load, count) / sum;
    const float factor = op.balance * static_cast<float>(count) / static_cast<float>(slots) / sum;
    for (int64_t e = 0; e < count; ++e) ds[e] = factor * (static_cast<float>(load[e]) - mean);
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
  return cut(op.logits, op.seqs, threads, nullptr).bytes;
}
int64_t router_bwd_cpu_workspace(const RouterBwd& op, int threads) {
  return cut(op.logits, op.seqs, threads, nullptr).bytes;
}

void router_stats_cpu(Ctx& ctx, const RouterStats& op, std::span<std::byte> workspace) {
  const int64_t count = op.logits.dim(1);
  Scratch s = cut(op.logits, op.seqs, ctx.threads, workspace.data());
  count_load(op, s);
  const int64_t pieces = list_pieces(op.seqs, op.logits.dim(0), s);
  sys::parallel(static_cast<int>(std::clamp<int64_t>(pieces, 1, ctx.threads)), [&](int thread, int team) {
    float* scores = s.own + thread * count;
    for (int64_t i = thread; i < pieces; i += team) {
      Piece& piece = s.pieces[i];
      for (int64_t t = piece.start; t < piece.start + piece.len; ++t) {
        const float* logits = op.logits.as<float>(t);
        router_scores(logits, count, op.kind, scores);
        const float lse = logsumexp(logits, count);
        piece.balance +=
            static_cast<double>(weighted(scores, s.whole + piece.sequence * count, count) / total(scores, count));
        piece.z += static_cast<double>(lse) * static_cast<double>(lse);
      }
    }
  });
  int64_t next = 0;
  for (int64_t i = 0; i < s.sequences; ++i) {
    double balance = 0, z = 0;
    for (; next < pieces && s.pieces[next].sequence == i; ++next) {
      balance += s.pieces[next].balance;
      z += s.pieces[next].z;
    }
    const auto slots = static_cast<double>(std::max<int64_t>(slots_of(s, i, count), 1));
    op.losses.as<float>(i)[0] = static_cast<float>(balance * static_cast<double>(count) / slots);
    op.losses.as<float>(i)[1] = static_cast<float>(z);
    for (int64_t e = 0; e < count; ++e) op.load.as<int32_t>()[e] += s.load[i * count + e];
  }
}

void router_bwd_cpu(Ctx& ctx, const RouterBwd& op, std::span<std::byte> workspace) {
  const int64_t count = op.logits.dim(1);
  Scratch s = cut(op.logits, op.seqs, ctx.threads, workspace.data());
  count_load(op, s);
  const int64_t pieces = list_pieces(op.seqs, op.logits.dim(0), s);
  sys::parallel(static_cast<int>(std::clamp<int64_t>(pieces, 1, ctx.threads)), [&](int thread, int team) {
    float* scores = s.own + thread * count;
    for (int64_t i = thread; i < pieces; i += team) {
      const Piece& piece = s.pieces[i];
      const int64_t slots = slots_of(s, piece.sequence, count);
      for (int64_t t = piece.start; t < piece.start + piece.len; ++t)
        token_gradient(op, t, s.whole + piece.sequence * count, slots, scores);
    }
  });
}

}  // namespace braid
