// Batch: what one step of training reads. Rows of at most `length` tokens, back to back; each document, or piece of
// one, is its own sequence, so that attention, convolution and scan start from an empty state at its first token and no
// target comes from another document. A row may have no target at all: its loss is over nothing.
#pragma once
#include <cstdint>
#include <vector>

#include "core/seq_map.h"

namespace braid::data {

constexpr int32_t kMasked = -1;  // a target that is not trained on

// What a file says of an answer, and of the answers in its group: those to one prompt.
struct Rating {
  double reward = 0;
  double mean = 0, deviation = 0;  // of the group's rewards; the deviation is that of a sample
  int64_t answers = 0;             // in the group, which may be a pair; 0: not rated

  bool operator==(const Rating&) const = default;
};

struct Batch {
  std::vector<int32_t> ids;      // [T]
  std::vector<int32_t> targets;  // [T] the token after each, or kMasked
  SeqMap seqs;                // sample_id: where the sequence begins among all tokens of the run, however rows are cut
  std::vector<int64_t> rows;  // [batch + 1] the first token of each row, then T; no sequence crosses one
  int64_t trained = 0;        // targets that are not masked
  std::vector<int64_t> row_ids;  // [batch] equal for equal rows of the data, whenever they come
  // Of answers, one to a sequence; otherwise empty.
  std::vector<Rating> ratings;
  std::vector<float> logprobs;          // [T] of the targets, under the policy that sampled them; empty for pairs
  std::vector<float> trainer_logprobs;  // [T] by a pass of training over the weights of that policy; usually empty
  struct Scratch {                      // buffers in which sources build rows
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
    row_ids.reserve(static_cast<size_t>(count));
  }
  void clear() {  // keeps the capacity
    ids.clear();
    targets.clear();
    seqs.seqs.clear();
    rows.assign(1, 0);
    trained = 0;
    row_ids.clear();
    ratings.clear();
    logprobs.clear();
    trainer_logprobs.clear();
  }
};

// Rows [begin, end) of a batch as a separate batch; the memory of `out` is reused.
void take_rows(const Batch& batch, int64_t begin, int64_t end, Batch& out);

}  // namespace braid::data
