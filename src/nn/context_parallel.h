// Context parallelism: ranks divide the tokens of every sequence. All but attention, convolution and scan act on one
// token at a time, so a rank computes them for its own; those three either exchange tokens for heads with the other
// ranks (DeepSpeed-Ulysses, arXiv 2309.14509), each then reading all tokens of its heads, or pass keys and values
// (nn/ring_attention.h) or states from rank to rank.
//
// Causal attention makes the last tokens the most expensive. Zigzag cuts a sequence in 2 P chunks and gives rank r
// chunks r and 2 P - 1 - r, so that all have the same work; what passes states on needs consecutive tokens.
//
// Parameters are whole on every rank; their gradients add up over the ranks.
#pragma once
#include <array>

#include "nn/ops.h"

namespace braid::nn {

enum class TokenOrder : uint8_t { zigzag, consecutive };

struct ContextShares {
  // Rows [at, at + len) of a rank are rows [first, first + len) of all.
  struct Piece {
    int rank = 0;
    int64_t at = 0, first = 0, len = 0;
    size_t sequence = 0;  // of all
  };
  comm::Group* ranks = nullptr;
  const SeqMap* whole = nullptr;       // the sequences of all rows
  SeqMap own{};                        // pieces of this rank: the sequence map of its pass
  std::vector<Piece> pieces{};         // of all ranks, in the order of `first`
  std::vector<int64_t> counts{};       // rows of every rank
  std::vector<size_t> sequence{};      // of each piece in `own`: its index in `whole`
  std::vector<int> before{}, after{};  // of each of those: who has what precedes and follows it; -1: it is an end
  bool ring = false;                   // attention passes keys and values on instead of exchanging heads
  bool states = false;                 // Mamba passes states on

  int64_t rows() const { return own.tokens(); }
};

// Divides `whole`, which outlives the shares, for `rank` of `ranks`. Error when a rank would have no rows.
void divide_tokens(const SeqMap& whole, int rank, int ranks, TokenOrder order, ContextShares& shares);
// The rank with most rows.
int largest_share(const ContextShares& shares);

// Without context parallelism all tokens are this rank's, and all sequences are whole.
//
// This rank's rows of x [T, ...] of all: ids, targets. Not taped.
Tensor own_tokens(Run& run, const Tensor& x);
const SeqMap& whole_sequences(const Run& run);
// The sequence of which an element of run.seqs is a piece.
const Seq& whole_of(const Run& run, const Seq& piece);

// Columns of a tensor that are divided among ranks: `units` equal parts, heads or groups, of which a rank gets its
// share, or the one that it shares with others.
struct HeadColumns {
  std::array<Segment, 4> segments{};
  size_t count = 0;

  HeadColumns(std::initializer_list<Segment> list);
  // Columns of rank `rank`.
  int64_t width(int rank, int ranks) const;
};
Range units_of(int64_t units, int rank, int ranks);

// x [own, C], any stride between rows -> [T, width]: all tokens in order, the columns of this rank.
Tensor tokens_to_heads(Run& run, const Tensor& x, const HeadColumns& columns);
// y [T, width] -> [own, C]: back, where no unit is shared.
Tensor heads_to_tokens(Run& run, const Tensor& y, const HeadColumns& columns);

}  // namespace braid::nn
