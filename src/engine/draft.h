// Speculative decoding: tokens drafted for a step, which reads and verifies several at once. A draft is always a single
// guess for each place, and the answer's own draw at that place decides: a draft that equals it saves a pass, another
// is undone. So every token is drawn from the same distribution, by the same random number, as without drafts, after
// all penalties and limits; and by the row contract it is the same token. (Rejection sampling accepts a guess with the
// probability p that it has, and otherwise draws from the rest, renormalised: that is what this comes down to.)
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/draft_depth.h"
#include "engine/draft_loop.h"
#include "engine/draft_model.h"
#include "engine/draft_mtp.h"
#include "engine/draft_ngram.h"

namespace braid::engine {

constexpr int64_t kDraftMax = 7;  // a step reads at most 8 tokens (core/seq_map.h)

struct DraftOptions {
  bool ngram = false;  // what followed the same tokens earlier in the prompt and the answer
  bool mtp = false;    // the model's prediction block, which it must have
  // A smaller model with the same vocabulary, which outlives the drafts; null: none. Instead of the prediction block.
  Runner* model = nullptr;
  int64_t loop_steps = 0;  // the model itself with so many steps of its loop; 0: not. Instead of both
  int64_t tokens_max = 0;  // of one step, up to kDraftMax; 0: none
  bool always = false;     // for tests and measurements: as many as there are, whether they pay or not
  // For tests and measurements: drafts from outside, given the text and their largest number, instead of all others.
  std::function<std::vector<int32_t>(std::span<const int32_t> text, int64_t tokens_max)> source{};

  bool any() const { return tokens_max > 0 && (ngram || mtp || model || loop_steps > 0 || source); }
};

// Kinds of guesses, by what says how likely they are: 8 of n-grams by the length of the match, then those from outside,
// then those of the prediction block, the draft model or the model's own fewer steps by depth.
using DraftRates = std::array<Rate, 9 + kDraftMax>;

// What one answer remembers about its drafts.
struct AnswerDrafts {
  std::vector<int32_t> tokens{};  // to verify in this pass, after the last token
  int64_t drafted = 0, accepted = 0;

  NgramIndex index{};
  int64_t index_tokens = INT64_MAX;  // that the text may have for it; a longer one has no drafts from n-grams
  std::vector<int32_t> guess{};      // that `tokens` was cut from
  std::vector<size_t> kinds{};       // of each guess
  DraftRates rates{};
  std::optional<MtpState> mtp{};           // of an answer that the prediction block reads along
  std::optional<ModelDraftState> model{};  // of an answer that the draft model reads along
  bool loop = false;                       // of an answer for which the model drafts with fewer steps
  int64_t idle = 0;                        // passes since either of these drafted
  bool read_along() const { return mtp || model || loop; }
};

class Drafter {
 public:
  Drafter(Runner& runner, DraftOptions options);

  // The draft model's; null: none.
  Runner* model() const { return options_.model; }
  int64_t model_bytes() const { return model_bytes_; }  // of its weights
  // A new answer, of whose text `cached` tokens were read for others, of at most `tokens_max` tokens with its prompt.
  AnswerDrafts begin(int64_t cached, int64_t tokens_max);
  // Of memory, for what the n-grams of a text of so many tokens take at most; 0 without drafts from them.
  int64_t index_bytes_of(int64_t tokens) const {
    return options_.ngram && !options_.source ? tokens * NgramIndex::kTokenBytes : 0;
  }
  // It will have no more drafts.
  void end(AnswerDrafts& answer);
  // The model has read further tokens of it, which count: rows [first, first + count) of its residual stream.
  void read(AnswerDrafts& answer, const Tensor& x, int64_t first, int64_t count);

  struct Wanted {
    AnswerDrafts* answer = nullptr;
    int64_t sequence = 0;
    const TokenPicker* picker = nullptr;  // its text: prompt and answer, the last token not read yet
    int64_t tokens_max = 0;               // that there is room for; 0: its prompt is still being read
  };
  // Sets the tokens of all answers for the next pass, which steps so many of them.
  void draft(std::span<const Wanted> answers, int64_t steps, int64_t slots);
  // After the pass: what was drawn in place of the drafts, as many as were accepted and one more.
  void drawn(AnswerDrafts& answer, std::span<const int32_t> tokens);
  // What a pass of steps alone took.
  void note(int64_t sequences, int64_t drafts, double seconds) { chooser_.note(sequences, drafts, seconds); }
  // Lets the prediction block read what the model has read, for those who continue from this sequence.
  void settle(AnswerDrafts& answer, int64_t sequence, std::span<const int32_t> text);

 private:
  Offer offer(const Wanted& wanted);
  double odds_of(const AnswerDrafts& answer, size_t kind) const;
  int64_t unread(const AnswerDrafts& answer, std::span<const int32_t> text) const;
  std::vector<std::vector<int32_t>> guesses_of(std::span<const Wanted> reading, std::span<const int64_t> tokens);
  void draft_by_reader(std::span<const Wanted> answers, std::span<const int64_t> depths);

  Runner& runner_;
  DraftOptions options_;
  DepthChooser chooser_;
  // What reads answers along to draft: the prediction block, the draft model or the model itself.
  MtpDrafter block_;
  std::optional<ModelDrafter> model_;
  int64_t model_bytes_ = 0;
  std::optional<LoopDrafter> loop_;
  DraftRates rates_{};         // of all answers
  double reader_seconds_ = 0;  // that a draft of the reader takes
  int64_t reader_rest_ = 0;    // answers until the reader reads one again, after one that it did not pay for
};

}  // namespace braid::engine
