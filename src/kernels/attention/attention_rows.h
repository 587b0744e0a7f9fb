// What attention.cc and attention_cpu.cc share.
#pragma once
#include <algorithm>

#include "kernels/attention/attention.h"
#include "math/packed.h"

namespace braid {

// A CHECK that the page table covers the batch or, without one, that no position needs it.
void check_pages(const char* op, const SeqMap* seqs, const View& table, const View& pages, int64_t tokens);
// A CHECK that attention reads the type of the pages, and that there are scales exactly if it is I8.
void check_codes(const char* op, const View& pages, const View& scales);
void check_fwd(const AttentionFwd& op);

void check_sequences(const AttentionBwd& op);

// What sequence i reads: its first row of keys without a page table, their number, and how many of them precede the
// sequence's first token.
struct AttentionKeys {
  int64_t start = 0, count = 0, before = 0;
};
AttentionKeys keys_of(const SeqMap& seqs, const SeqMap* keys, size_t i);

// Products in register tiles, FP32, or with a kernel of packed operands, 32 x 32 on tiles, which rounds queries and
// exponentials to BF16.
int64_t attention_fwd_workspace(const packed::Kernel* tiles, const AttentionFwd& op, int threads);
void attention_fwd_blocks(const packed::Kernel* tiles, Ctx& ctx, const AttentionFwd& op,
                          std::span<std::byte> workspace);

// The same choice in backward: queries, keys, values, dy, probabilities and ds are rounded.
int64_t attention_bwd_workspace(const packed::Kernel* tiles, const AttentionBwd& op, int threads);
void attention_bwd_blocks(const packed::Kernel* tiles, Ctx& ctx, const AttentionBwd& op,
                          std::span<std::byte> workspace);

// One task: `tokens` tokens of a sequence with all query heads that share one KV head. Row r of its arrays is token
// r / ratio, head r % ratio.
struct AttentionTile {
  Seq seq{};
  AttentionKeys seen{};
  int64_t group = 0;
  int64_t first = 0, tokens = 0;  // within the sequence
  int64_t ratio = 1;              // query heads per KV head
  int64_t rows() const { return tokens * ratio; }
  int64_t pos() const { return seen.before + first; }                    // of the first token
  int64_t keys() const { return std::min(pos() + tokens, seen.count); }  // that the last token sees
  int64_t most(int64_t start) const;                                     // of a block that a token sees
};

// Unnormalised softmax over a part of the keys: y = sum_j exp(s_j - max) v_j, sum = sum_j exp(s_j - max).
struct AttentionPart {
  float* y = nullptr;    // [rows, pad]
  float* max = nullptr;  // [rows]
  float* sum = nullptr;  // [rows]
  int64_t pad = 0;
};

// One thread's memory, in floats.
struct AttentionScratch {
  float* q = nullptr;       // [rows, P], scaled but for tiles
  float* keys = nullptr;    // [P, kBlock]: a block of keys, transposed
  float* values = nullptr;  // [kBlock, pad]
  float* scores = nullptr;  // [rows, kBlock]
  float* sums = nullptr;    // [rows, 16]: sums of exponentials by vector lane
  AttentionPart total{}, part{};

  const packed::Kernel* tiles = nullptr;  // null: register tiles, which need none of what follows
  int64_t rows = 0;                       // a multiple of the kernel's
  std::byte *packed_q = nullptr, *packed_p = nullptr;
  std::byte* panel = nullptr;  // of keys or values
  Bf16* block_rows = nullptr;  // [kBlock, P]: keys or values that do not lie as they can be packed
  float* factors = nullptr;    // [kBlock]: of scores, then of exponentials
};

// One thread's memory in backward, in floats. Rows of channels are `pad` apart and zero beyond P.
struct AttentionBwdScratch {
  float *q = nullptr, *dy = nullptr, *dq = nullptr;        // [rows, pad]; q is scaled but for tiles
  float *p = nullptr, *ds = nullptr;                       // [rows, kBlock]
  float *lse = nullptr, *delta = nullptr;                  // [rows]; delta = dy . y
  float *dk = nullptr, *dv = nullptr;                      // [tokens of a sequence, pad]
  float *keys_across = nullptr, *values_across = nullptr;  // [P, kBlock]
  float* keys = nullptr;                                   // [kBlock, pad]
  int64_t pad = 0;

  const packed::Kernel* tiles = nullptr;  // null: register tiles; else the last three are not used, but what follows
  std::byte *q_rows = nullptr, *dy_rows = nullptr;  // [rows, P]
  std::byte *q_cols = nullptr, *dy_cols = nullptr;  // the same transposed, from row `cols_from` on
  std::byte *scores = nullptr, *panel = nullptr;    // p or ds as rows; keys or values
  int64_t cols_from = -1;
};

// The absolute grid of keys. A block is one step of the running softmax: 64 keys of 128 channels fill half of an L2 way
// and 4 vectors of AVX-512. A span starts a new running softmax, so that spans can be worked on by different threads
// and combined in their order; 8 blocks are enough for the combination to cost nothing.
inline constexpr int64_t kAttentionBlock = 64;
inline constexpr int64_t kAttentionSpan = 8 * kAttentionBlock;

inline int64_t AttentionTile::most(int64_t start) const { return std::min(kAttentionBlock, seen.count - start); }

// Rows of a tile, which share a transposed block: their y, q and scores stay within L2. In backward they are the grid
// of the sums over tokens.
inline constexpr int64_t kAttentionTileRows = 128;

}  // namespace braid
