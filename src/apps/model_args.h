// Options shared by all commands that run a model.
#pragma once
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli.h"
#include "engine/draft.h"
#include "engine/draft_model.h"
#include "engine/language_model.h"

namespace braid::apps {

// Error where the text is not UTF-8, counted from its first byte.
void check_utf8(const char* flag, const std::string& text);
// The value of a flag lies in [low, high], or is refused.
void check_range(const char* flag, int64_t value, int64_t low, int64_t high);
// Error for the first flag that is given though `beside` leaves it unread.
void refuse_unread(const char* beside, std::initializer_list<std::pair<const char*, bool>> given);

// What is read as a tokenizer: a folder or file, else a model's folder by its name.
std::filesystem::path find_tokenizer(const std::string& argument);

// Error where the model has no tokenizer; `hint` is what to try without one.
void need_tokenizer(const io::ModelPath& model, const char* hint);

struct ModelArgs {
  std::string model = "tiny";
  std::string dtype = "bf16", activations = "auto", kv = "auto", ssm = "f32", zeros = "auto", adapter{};
  int64_t context = 0, chunk = 512, threads = 0;
  bool exact = false;
  engine::Ranks* ranks = nullptr;  // that divide the model (apps/ranks_args.h)

  void declare(Cli& cli);
  void declare_types(Cli& cli);  // the part of it that says in which types products read and states are kept
  engine::RunnerOptions runner_options() const;
  // The model. A note on stderr where 8-bit activations were asked for, and none of its products takes them.
  engine::LanguageModel open(const engine::RunnerOptions& options) const;
};

// The format of a model for people: that of most of its bytes if quantised ("NVFP4", "Q4_K"), else the
// type that products read.
std::string numbers_of(engine::Runner& runner);

struct SamplingArgs {
  double temperature = 0, top_p = 1, min_p = 0, repeat_penalty = 1;
  double presence_penalty = 0, frequency_penalty = 0;
  int64_t top_k = 0, seed = 0;

  void declare(Cli& cli);
  void declare_penalties(Cli& cli);
  // Flag, else generation_config.json, else greedy. `cli` knows which flags were given.
  engine::SamplingOptions resolve(const Cli& cli, const io::ModelPath& path) const;
};

// Drafts of speculative decoding.
struct DraftArgs {
  std::string source = "auto", model;
  int64_t most = 4;

  void declare(Cli& cli);
  // Spare slots for the drafts of `parallel` answers at a time.
  void reserve(engine::RunnerOptions& options, int64_t parallel) const;
  // The draft model, if one is named; before the model that it drafts for, whose options then have less memory.
  std::optional<engine::DraftModel> load(engine::RunnerOptions& options) const;
  // Error when the model does not have what the drafts are to come from, or the draft model other tokens.
  engine::DraftOptions resolve(engine::LanguageModel& lm, const std::optional<engine::DraftModel>& draft) const;
};

// Was the option (long name, no dashes) given as a flag? Its variable may be meant for another command.
bool typed(const Cli& cli, const std::string& name);

// Of --ids or --ids-file. Error, with that flag, for one outside the vocabulary.
std::vector<int32_t> token_ids(const char* flag, const std::vector<int64_t>& ids, int64_t vocab);

// "on", "off" or nothing.
std::optional<bool> think_switch(const std::string& text);

bool is_blank(const std::string& text);  // spaces and ends of lines alone: no message

// Text of -p, of -f FILE, or of standard input when that is not a terminal; nullopt when there is none.
std::optional<std::string> prompt_text(const std::string& text, const std::string& file);
// The same of the first rank, which alone may read standard input; no text is an empty one.
std::optional<std::string> prompt_text(engine::Ranks* ranks, const std::string& text, const std::string& file);

}  // namespace braid::apps
