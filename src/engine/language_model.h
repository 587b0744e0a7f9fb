// Everything that belongs to one model argument: its Runner, tokenizer and chat template. The tokenizer and the
// template are read when first asked for, so that ids in, ids out needs neither.
#pragma once
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "engine/reasoning_budget.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "grammar/grammars.h"
#include "grammar/tool_calls.h"
#include "io/model_path.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace braid::engine {

struct RenderOptions {
  std::optional<bool> think{};                        // nullopt: what the template does by itself
  const nlohmann::ordered_json* tools = nullptr;      // an array of functions
  const nlohmann::ordered_json* variables = nullptr;  // an object: more variables of the template
  bool answer_next = true;                            // the prompt of an answer follows the messages
  bool think_if_possible = false;                     // `think` means nothing to a model without a switch
};

class LanguageModel {
 public:
  LanguageModel(const std::string& argument, const RunnerOptions& options);

  Runner& runner() { return *runner_; }
  const io::ModelPath& path() const { return path_; }
  const text::Tokenizer& tokenizer();
  // The prompt of a conversation (an array of {role, content}). Error when thinking is asked of a model without a
  // switch for it, unless options.think_if_possible. Turning it off is allowed there and changes nothing. Reasoning is
  // as ReasoningSplitter gave it: its final newline is left out where the template writes one of its own, so that the
  // prompt holds what the model wrote.
  std::string render(const nlohmann::ordered_json& messages, const RenderOptions& options);
  // Where the answer to such a prompt begins. Without a switch the model may open <think> whatever was asked.
  Thinking thinking_after(std::string_view prompt, std::optional<bool> think);
  // Can its template turn thinking on and off?
  bool has_think_switch();

  // A limit of so many tokens of thinking; -1: none. With `grace`, up to so many more until a line ends. The model
  // outlives it.
  ReasoningBudget reasoning_budget(int64_t tokens, int64_t grace = 0);

  // Constraints of answers. From any thread, but the first call.
  grammar::Grammars& grammars();
  // How the model writes tool calls, by what its template shows.
  grammar::CallForm call_form();

  // Of a token: engine/answer_text.h.
  bool is_silent(int32_t id);

 private:
  // How thinking is switched: a variable of the template, /think in the system prompt, which the template reads, or a
  // sentence there, which the model was trained on.
  enum class ThinkSwitch { none, variable, slash, sentence };
  const text::ChatTemplate& chat_template();  // loads it, with what follows from it
  ThinkSwitch switch_of(const text::ChatTemplate& chat) const;

  io::ModelPath path_;
  std::unique_ptr<Runner> runner_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  ThinkSwitch think_switch_ = ThinkSwitch::none;  // of template_
  bool ends_reasoning_ = false;                   // it writes a newline behind reasoning
  std::unique_ptr<grammar::Grammars> grammars_;
};

// What generation_config.json or a GGUF file says about sampling; missing fields keep their values in `otherwise`.
SamplingOptions sampling_of(const io::ModelPath& path, const SamplingOptions& otherwise);

}  // namespace braid::engine
