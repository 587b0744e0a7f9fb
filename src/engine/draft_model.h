// Drafts of a second, smaller model with the same vocabulary. It has its own runner, in which every answer that it
// reads along has a sequence. Guesses that it has read itself are undone by a mark: it continues from the text that is
// known. Its drafts are drawn as the answer's own tokens are, by the same random numbers: a model that gives a token
// the same probabilities drafts the same token, at any temperature. Whether a draft is accepted is decided as ever
// (draft.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "engine/runner.h"
#include "engine/token_picker.h"

namespace braid::engine {

struct DraftModel {
  io::ModelPath path{};
  std::unique_ptr<Runner> runner{};
};

// `options`: those of the model that it drafts for, of whose memory for sequences it takes its weights, and of the rest
// as much as its own sequences can need, at most a quarter. The context of the draft model is shorter where it was
// trained with less. Error as for any model.
DraftModel load_draft_model(const std::string& argument, RunnerOptions& options);
// Of its parameters.
int64_t weight_bytes(models::Model& model);
// Error when the two do not have the same tokens; it names the first difference.
void check_same_tokens(LanguageModel& model, const DraftModel& draft);

// Of one answer.
struct ModelDraftState {
  int64_t sequence = -1;           // of the draft model's runner
  int64_t promised = 0;            // bytes of its budget
  std::vector<int32_t> guessed{};  // read after the mark
};

class ModelDrafter {
 public:
  // Every sequence of the runner is this object's; each takes a spare slot for its mark.
  explicit ModelDrafter(Runner& runner);

  // A sequence for an answer of at most so many tokens, its prompt included; none where no room is left.
  std::optional<ModelDraftState> begin(int64_t tokens_max);
  void end(ModelDraftState& state);

  struct Wanted {
    ModelDraftState* state = nullptr;
    const TokenPicker* picker = nullptr;  // of the answer
    int64_t tokens = 0;                   // to draft; 0: only read
  };
  // Tokens of the text that are not read yet; the last one is never undone.
  int64_t unread(const ModelDraftState& state, std::span<const int32_t> text) const;
  // Whether so many tokens fit the context.
  bool fits(int64_t tokens) const { return tokens <= runner_.options().context; }
  // Tokens of a text that one call reads at most; a longer rest takes several, before the first draft.
  int64_t chunk() const { return runner_.options().chunk; }
  // Reads the texts and drafts.
  std::vector<std::vector<int32_t>> draft(std::span<const Wanted> wanted);

 private:
  void undo(ModelDraftState& state, std::span<const int32_t> text);

  Runner& runner_;
  std::vector<int64_t> free_;  // sequences
  int64_t promised_ = 0;       // bytes, to answers
};

}  // namespace braid::engine
