// Goldfish loss (Hans et al. 2024, arXiv 2406.10209): about one target in k is left out, chosen by a hash of the tokens
// that end with it, so that every copy of a passage loses the same tokens and cannot be memorised. The hash mixes 64
// bits of ids offset by one (no id is absorbing, nothing overflows); at the beginning of a document its window is
// shorter. The control leaves out as many, chosen by their position in the run: every copy loses other tokens.
#pragma once
#include <cstdint>
#include <span>

namespace braid::data {

struct Goldfish {
  int64_t k = 0;        // 0: off
  int64_t window = 13;  // tokens hashed, the target included
  uint64_t seed = 0;
  bool by_position = false;  // the control

  // Is the last of these tokens of one document left out? Looks at `window` tokens at most, or at its position among
  // all tokens of the run.
  bool drops(std::span<const int32_t> tokens, int64_t position) const;
};

}  // namespace braid::data
