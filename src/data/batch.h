// Batch: what one step of training reads. Rows of at most `length` tokens, back to back; each document, or piece of
// one, is its own sequence, so that attention, convolution and scan start from an empty state at its first token and no
// target comes from another document.
#pragma once
#include <cstdint>
#include <vector>

#include "core/seq_map.h"

namespace braid::data {

constexpr int32_t kMasked = -1;  // a target that is not trained on

struct Batch {
  std::vector<int32_t> ids;      // [T]
  std::vector<int32_t> targets;  // [T] the token after each, or kMasked
  SeqMap seqs;                // sample_id: where the sequence begins among all tokens of the run, however rows are cut
  std::vector<int64_t> rows;  // [batch + 1] the first token of each row, then T; no sequence crosses one
  int64_t trained = 0;        // targets that are not masked
  struct Scratch {            // buffers in which sources build rows
    std::vector<int32_t> ids;
    std::vector<int64_t> symbols, wider;
  } scratch;

  // For `count` rows of at most `length` tokens, even with a sequence per token: no such batch allocates.
  void reserve(int64_t count, int64_t length) {
    const auto tokens = static_cast<size_t>(count * length);
    ids.reserve(tokens);
    targets.reserve(tokens);
    seqs.seqs.reserve(tokens);
    rows.reserve(static_cast<size_t>(count) + 1);
  }
  void clear() {  // keeps the capacity
    ids.clear();
    targets.clear();
    seqs.seqs.clear();
    rows.assign(1, 0);
    trained = 0;
  }
};

}  // namespace braid::data
