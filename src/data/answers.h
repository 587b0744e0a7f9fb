// Answers to prompts, what preferences and policies are trained on: lines of JSON.
//
//   preference   {"prompt", "chosen", "rejected"}: a row is a pair of answers, the chosen one first, which may be rated
//                by "chosen_reward" and "rejected_reward". Pairs of one prompt are held out together.
//   rollouts     {"group", "prompt_ids", "completion_ids", "reward", "logprobs"}: a row is an answer that a policy
//                sampled, with the natural log-probability of each of its tokens; answers of one group have one prompt,
//                and are in one file.
//                Lines with an "error" are passed over: a run writes them of environments that failed
//                (train/rollout.h).
//
// Prompts and answers are given as text ("prompt", "chosen"), which the model's tokenizer reads, as token ids
// ("prompt_ids", "chosen_ids", ...), or the prompt as the "messages" of a chat, to which the answer is the assistant's
// next turn. Answers in text end with the end-of-text token, those in a chat as the template ends a turn. Only the
// tokens of answers are targets.
#pragma once
#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "data/corpus.h"
#include "data/language.h"
#include "data/reading.h"
#include "data/source.h"

namespace braid::data {

struct Answers {
  Corpus corpus{};  // a document each: prompt and answer, of which the answer is trained
  std::vector<Rating> ratings{};
  std::vector<float> logprobs{};          // of all trained tokens of rollouts
  std::vector<int64_t> logprob_begins{};  // [answers + 1] where those of each begin; empty for pairs
  int64_t per_row = 1;                    // 2: pairs
  std::vector<int64_t> groups{};          // of every row, numbered in their order: those of one prompt are held out
                                          // together

  int64_t rows() const { return corpus.documents() / per_row; }
  int64_t group_count() const { return groups.empty() ? 0 : 1 + *std::max_element(groups.begin(), groups.end()); }
  int64_t length_of(int64_t row) const;  // tokens that are read: all but the last of each answer
};

// Error naming the line that is malformed, has an id outside the vocabulary, or a reward or log-probability that is not
// finite. With `rated` a line without rewards is one too, and so is a group of a single rollout; without, rewards and
// groups may be missing. `reading` may be empty.
Answers read_preferences(const std::filesystem::path& path, const Language& language, bool rated,
                         const Reading& reading = {});
Answers read_rollouts(const std::filesystem::path& path, const Language& language, bool rated,
                      const Reading& reading = {});

class AnswersSource final : public Source {
 public:
  AnswersSource(Answers answers, std::vector<int64_t> chosen)
      : answers_(std::move(answers)), chosen_(std::move(chosen)) {}
  int64_t rows() const override { return std::ssize(chosen_); }
  void row(int64_t index, RowWriter& out) const override;
  uint64_t content(int threads) const override;

 private:
  Answers answers_;
  std::vector<int64_t> chosen_;  // rows of `answers_`, the others are not read
};

}  // namespace braid::data
