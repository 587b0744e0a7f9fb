// States of prefixes that were read before, for prompts that begin with them: a chat sends its whole conversation again
// with every turn. An entry is a sequence of the runner. Its keys and values are shared with every sequence that reads
// on from it, page by page, reference-counted and copied on write; its recurrent state is a copy, which cannot be cut
// at another position: so a prompt continues from the longest entry of which it contains every token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace braid::engine {

class PrefixCache {
 public:
  // Of the runner's sequences, `count` from `first` on are for its use alone.
  PrefixCache(Runner& runner, int64_t first, int64_t count);

  // Lets `sequence` continue from the longest entry that `prompt` begins with, and that leaves at least one token to
  // read. Returns the entry's length; 0, and the sequence is reset, if there is none.
  int64_t resume(std::span<const int32_t> prompt, int64_t sequence);
  // Stores the state of `sequence`, which has read `tokens`, in place of the entry that was used least recently. An
  // entry of the same tokens is used again.
  void keep(std::span<const int32_t> tokens, int64_t sequence);
  int64_t entries() const;

 private:
  struct Entry {
    int64_t sequence = 0;
    std::vector<int32_t> tokens{};  // none: free
    uint64_t used = 0;
  };
  Runner& runner_;
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace braid::engine
