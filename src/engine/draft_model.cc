#include "engine/draft_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/seq_map.h"
#include "models/load.h"
#include "models/presets.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::engine {
namespace {

std::string token_text(const text::Tokenizer& tokenizer, int32_t id) {
  const auto token = tokenizer.id_to_token(id);
  return token ? fmt::format("'{}'", printable(*token, 60)) : "no token";
}

void take_weights(int64_t bytes, int64_t& memory) {
  if (bytes >= memory)
    fail_environment("--draft-model", {.what = "its weights do not fit",
                                       .got = fmt::format("{} bytes of --memory", memory),
                                       .expected = fmt::format("more than {}", bytes),
                                       .hint = "a larger --memory, or no draft model"});
  memory -= bytes;
}

}  // namespace

int64_t weight_bytes(models::Model& model) {
  int64_t bytes = 0;
  for (const Param* param : model.params()) bytes += param->value.bytes();
  return bytes;
}

DraftModel load_draft_model(const std::string& argument, RunnerOptions& options) {
  DraftModel draft{.path = models::find_weights(argument)};
  std::shared_ptr<models::Model> model = models::load_model(draft.path);
  RunnerOptions own = options;
  own.adapter.clear();
  own.ranks = nullptr;         // each has all of it
  own.numerics.exact = false;  // no answer depends on its bits
  own.spare_slots = own.sequences;
  models::skip_zeros(*model, own.zeros, own.numerics.products, own.threads > 0 ? own.threads : sys::default_threads());
  if (const int64_t trained = model->config().positions_max; trained > 0) own.context = std::min(own.context, trained);
  if (options.memory != 0) {
    options.memory = choose_memory(options);
    if (options.memory > 0) take_weights(weight_bytes(*model), options.memory);
    own.memory = options.memory / 4;
    own.context = choose_context(*model, own);
    const SequenceBytes bytes = sequence_bytes(model->state_shapes(), own.numerics.caches(), false);
    const int64_t pages = (own.context + kPageTokens - 1) / kPageTokens;
    own.memory = std::min(own.memory, own.sequences * (2 * bytes.fixed + pages * kPageTokens * bytes.per_token));
    options.memory -= own.memory;
  }
  draft.runner = std::make_unique<Runner>(std::move(model), own);
  return draft;
}

void check_same_tokens(LanguageModel& model, const DraftModel& draft) {
  const auto differs = [](std::string what, std::string got, std::string expected) {
    fail("--draft-model", {.what = std::move(what),
                           .got = std::move(got),
                           .expected = std::move(expected),
                           .hint = "a smaller model of the same family"});
  };
  const int64_t vocab = model.runner().config().vocab, other = draft.runner->config().vocab;
  if (vocab != other)
    differs("the vocabularies differ in size", std::to_string(other), fmt::format("{} as in the model", vocab));
  const text::Tokenizer& tokenizer = model.tokenizer();
  const text::Tokenizer own = text::Tokenizer::load(draft.path.folder);
  for (int32_t id = 0; id < vocab; ++id) {
    if (tokenizer.id_to_token(id) == own.id_to_token(id)) continue;
    differs(fmt::format("the vocabularies differ in token {}", id), token_text(own, id),
            token_text(tokenizer, id) + " as in the model");
  }
}

ModelDrafter::ModelDrafter(Runner& runner) : runner_(runner) {
  const int64_t sequences = runner.options().sequences;
  CHECK(runner.options().spare_slots >= sequences, "{} marks of {} sequences", runner.options().spare_slots, sequences);
  for (int64_t sequence = sequences; sequence-- > 0;) {
    runner_.reset(sequence);
    free_.push_back(sequence);
  }
}

std::optional<ModelDraftState> ModelDrafter::begin(int64_t tokens_max) {
  const int64_t memory = runner_.options().memory;
  const int64_t bytes =
      runner_.sequence_bytes_of(std::min(tokens_max, runner_.options().context)) + runner_.pool().slot_bytes();
  if (free_.empty() || (memory > 0 && promised_ + bytes > memory)) return std::nullopt;
  ModelDraftState state{.sequence = free_.back(), .promised = bytes};
  free_.pop_back();
  promised_ += bytes;
  return state;
}

void ModelDrafter::end(ModelDraftState& state) {
  runner_.reset(state.sequence);
  free_.push_back(std::exchange(state.sequence, -1));
  promised_ -= std::exchange(state.promised, 0);
}

int64_t ModelDrafter::unread(const ModelDraftState& state, std::span<const int32_t> text) const {
  return std::ssize(text) - (runner_.length(state.sequence) - std::ssize(state.guessed));
}

// What it has read is a beginning of the text after this, without the text's last token.
void ModelDrafter::undo(ModelDraftState& state, std::span<const int32_t> text) {
  if (state.guessed.empty()) return;
  const auto known = text.subspan(static_cast<size_t>(runner_.length(state.sequence) - std::ssize(state.guessed)));
  const bool right =
      known.size() > state.guessed.size() && std::equal(state.guessed.begin(), state.guessed.end(), known.begin());
  if (!right) runner_.rewind(state.sequence);
  state.guessed.clear();
}

std::vector<std::vector<int32_t>> ModelDrafter::draft(std::span<const Wanted> wanted) {
  constexpr int64_t kStep = 8;  // tokens of a step at most (core/seq_map.h)
  std::vector<std::vector<int32_t>> drafts(wanted.size());
  std::vector<Piece> pieces;
  std::vector<int32_t> ids;
  std::vector<size_t> drafting;  // of wanted
  std::vector<int64_t> last;     // rows that predict their next draft
  for (size_t i = 0; i < wanted.size(); ++i) {
    ModelDraftState& state = *wanted[i].state;
    const std::span<const int32_t> text = wanted[i].picker->text();
    undo(state, text);
    const auto rest = text.subspan(static_cast<size_t>(runner_.length(state.sequence)));
    const int64_t tokens = std::min(std::ssize(rest), chunk());
    CHECK(tokens > 0, "nothing to read of a text of {} tokens", text.size());
    ids.insert(ids.end(), rest.begin(), rest.begin() + tokens);
    pieces.push_back(
        {.sequence = state.sequence, .tokens = tokens, .phase = tokens <= kStep ? Phase::step : Phase::prefill});
    if (wanted[i].tokens == 0 || tokens < std::ssize(rest)) continue;
    drafting.push_back(i);
    last.push_back(std::ssize(ids) - 1);
  }
  for (int64_t depth = 1; !pieces.empty(); ++depth) {
    const Tensor x = runner_.forward(ids, pieces);
    if (drafting.empty()) break;
    const Tensor logits = runner_.logits(runner_.rows(x, last), pieces[0].phase);
    const auto width = static_cast<size_t>(logits.dim(1));
    std::vector<size_t> further;
    pieces.clear();
    ids.clear();
    last.clear();
    for (size_t row = 0; row < drafting.size(); ++row) {
      const Wanted& w = wanted[drafting[row]];
      std::vector<int32_t>& own = drafts[drafting[row]];
      const auto next = w.picker->guess({logits.view().as<float>() + row * width, width}, own);
      if (!next) continue;
      own.push_back(*next);
      if (depth == w.tokens || (depth == 1 && !runner_.mark(w.state->sequence))) continue;
      w.state->guessed.push_back(*next);
      further.push_back(drafting[row]);
      last.push_back(std::ssize(ids));
      ids.push_back(*next);
      pieces.push_back({.sequence = w.state->sequence, .tokens = 1, .phase = Phase::step});
    }
    drafting = std::move(further);
  }
  return drafts;
}

}  // namespace braid::engine
