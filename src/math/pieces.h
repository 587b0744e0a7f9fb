// The token grid of parameter gradients. A gradient of a weight adds up over tokens in pieces: kPieceTokens rows from
// the first row of each sequence on, the last of which may be shorter; grad = (grad + piece) + piece ... in order. So
// neither the team size nor how a batch is split between sequences changes a bit: two calls with {a} and {b} give what
// one with {a, b} gives.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/seq_map.h"
#include "sys/check.h"

namespace braid {

inline constexpr int64_t kPieceTokens = 256;

// body(first row, rows) for every piece, in order. Null `seqs`: all `tokens` rows are one sequence.
template <class Body>
void for_each_piece(const SeqMap* seqs, int64_t tokens, Body&& body) {
  const auto pieces_of = [&](int64_t start, int64_t len) {
    for (int64_t t = 0; t < len; t += kPieceTokens) body(start + t, std::min(kPieceTokens, len - t));
  };
  if (!seqs) return pieces_of(0, tokens);
  int64_t end = 0;
  for (const Seq& seq : seqs->seqs) {
    CHECK(seq.start == end && seq.len >= 0, "sequence at {} of {} rows, after {}", seq.start, seq.len, end);
    pieces_of(seq.start, seq.len);
    end += seq.len;
  }
  CHECK(end == tokens, "sequences of {} rows, {} tokens", end, tokens);
}

// The same with neighbouring pieces taken together, up to `most` rows, where all but the last have a multiple of
// `step`; pieces(f) calls f for each piece.
template <class Pieces, class Body>
void for_each_run(Pieces&& pieces, int64_t step, int64_t most, Body&& body) {
  int64_t start = 0, rows = 0;
  pieces([&](int64_t t, int64_t n) {
    if (rows > 0 && rows % step == 0 && rows + n <= most) {
      rows += n;
      return;
    }
    if (rows > 0) body(start, rows);
    start = t, rows = n;
  });
  if (rows > 0) body(start, rows);
}

}  // namespace braid
