// Speculative decoding: tokens drafted for a step, which reads and verifies several at once. A draft is always a single
// guess for each place, and the answer's own draw at that place decides: a draft that equals it saves a pass, another
// is undone. So every token is drawn from the same distribution, by the same random number, as without drafts, after
// all penalties and limits; and by the row contract it is the same token.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/draft_depth.h"
#include "engine/draft_ngram.h"

namespace braid::engine {

constexpr int64_t kDraftMax = 7;  // a step reads at most 8 tokens (core/seq_map.h)

struct DraftOptions {
  bool ngram = false;      // what followed the same tokens earlier in the prompt and the answer
  int64_t tokens_max = 0;  // of one step, up to kDraftMax; 0: none
  bool always = false;     // for tests and measurements: as many as there are, whether they pay or not
  // For tests and measurements: drafts from outside, given the text and their largest number, instead of all others.
  std::function<std::vector<int32_t>(std::span<const int32_t> text, int64_t tokens_max)> source{};

  bool any() const { return tokens_max > 0 && (ngram || source); }
};

// What one answer remembers about its drafts.
struct AnswerDrafts {
  std::vector<int32_t> tokens{};  // to verify in this pass, after the last token
  int64_t drafted = 0, accepted = 0;

  NgramIndex index{};
  std::vector<int32_t> guess{};  // that `tokens` was cut from
  std::vector<size_t> kinds{};   // of each guess: which rate says how likely it is
  std::array<Rate, 16> rates{};
};

class Drafter {
 public:
  explicit Drafter(DraftOptions options) : options_(std::move(options)) {}

  struct Wanted {
    AnswerDrafts* answer = nullptr;
    std::span<const int32_t> text{};  // prompt and answer, the last token not read yet
    int64_t tokens_max = 0;           // that there is room for
  };
  // Sets the tokens of all answers that the next pass steps.
  void draft(std::span<const Wanted> answers, int64_t slots);
  // After the pass: what was drawn in place of the drafts, as many as were accepted and one more.
  void drawn(AnswerDrafts& answer, std::span<const int32_t> tokens);
  // What a pass of steps alone took.
  void note(int64_t sequences, int64_t drafts, double seconds) { chooser_.note(sequences, drafts, seconds); }

 private:
  Offer offer(const Wanted& wanted);

  DraftOptions options_;
  DepthChooser chooser_;
  std::array<Rate, 16> rates_{};  // of all answers
};

}  // namespace braid::engine
