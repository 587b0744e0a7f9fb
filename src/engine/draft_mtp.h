// Drafts of the model's own prediction block (MTP): a layer or two that read the last hidden state of a token and the
// token after it, and predict the one after that; fed with what it returned and with its own draft, it predicts one
// further each time. Its attention has keys and values of its own, in the sequence's pages, which it computes from the
// same tokens as the model, only later: a row needs the token that follows.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace braid::engine {

// Whether the model has a block whose drafts can be undone: one without recurrent states.
bool has_prediction_block(const models::Config& config);

// Of one sequence: how far the block has read it, and what it has not read yet.
struct MtpState {
  int64_t read = 0;             // tokens whose rows were computed
  std::vector<float> hidden{};  // of the model's tokens after them, [unread, D]
  int64_t unread(int64_t width) const { return std::ssize(hidden) / width; }
};

class MtpDrafter {
 public:
  explicit MtpDrafter(Runner& runner) : runner_(runner) {}

  // The model has read further tokens: rows [first, first + count) of its residual stream.
  void note(MtpState& state, const Tensor& x, int64_t first, int64_t count);
  struct Wanted {
    MtpState* state = nullptr;
    int64_t sequence = 0;
    std::span<const int32_t> text{};  // the token after the last row included
    int64_t tokens = 0;               // to draft; 0: only read
  };
  // Reads what is unread of each sequence as far as the next token is known, and drafts.
  std::vector<std::vector<int32_t>> draft(std::span<const Wanted> wanted);

 private:
  Runner& runner_;
};

}  // namespace braid::engine
