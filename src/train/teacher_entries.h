// A teacher as the likeliest next tokens of every token with their log-probabilities at a temperature: what a student
// follows instead of the whole distribution (kernels/head_loss/distill_loss.h), and what can be kept on disk, so that a
// teacher runs once for any number of epochs and students.
//
// A cache is a folder: the entries of every row of the data as safetensors, and what they were made of, with which a
// run must agree. Tensors: rows [R] I64, the id of each row; and of row N ids.N [n, K] I32 and logprobs.N [n, K] F32.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>

#include "data/loader.h"
#include "io/safetensors.h"
#include "train/frozen.h"

namespace braid::train {

// [T, K] each, the likeliest first; a missing one, in a vocabulary of fewer, has the id -1.
struct Entries {
  Tensor ids, logprobs;
};

// Of the teacher, now. Logits are materialised for 64 tokens at a time.
Entries entries_of(Ctx& ctx, Frozen& teacher, const data::Batch& part, int64_t count, double temperature);

class EntriesCache {
 public:
  // Writes the entries of all rows of `data`, which is not shuffled; `made_of` is JSON text.
  static void make(const std::filesystem::path& folder, const std::string& made_of, Ctx& ctx, Frozen& teacher,
                   const data::Loader& data, int64_t count, double temperature);
  // Error when the folder is not a whole cache, or was made of something else.
  EntriesCache(const std::filesystem::path& folder, const std::string& made_of, int64_t count, int64_t vocabulary);

  // Of the rows of a part. Error when a row is not in the cache, or an entry is malformed.
  Entries read(Ctx& ctx, const data::Batch& part) const;

 private:
  std::string where_;
  int64_t count_, vocabulary_;
  io::Safetensors file_;
  struct Row {
    View ids, logprobs;
  };
  std::unordered_map<int64_t, Row> rows_;  // by id
};

}  // namespace braid::train
