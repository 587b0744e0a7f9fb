#include "engine/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/answer_text.h"
#include "engine/reasoning.h"
#include "io/gguf.h"
#include "io/json.h"
#include "models/adapter_file.h"
#include "models/load.h"
#include "models/load_part.h"
#include "models/presets.h"
#include "sys/env.h"
#include "sys/error.h"
#include "sys/parallel.h"
#include "text/tokenizer_config.h"

namespace braid::engine {
namespace {

// Zeros are multiplied where bits must be those of training or of one rank, and where an adapter changes values.
std::unique_ptr<models::Model> load(const io::ModelPath& path, const RunnerOptions& options) {
  if (options.ranks) return models::load_part(path, options.ranks->division(), options.ranks->rank());
  if (!options.adapter.empty()) return models::load_adapted(path, options.adapter, options.numerics.products);
  auto model = models::load_model(path);
  if (options.numerics.exact) return model;
  const int threads = options.threads > 0 ? options.threads : sys::default_threads();
  const models::ZeroGroups z = models::skip_zeros(*model, options.zeros, options.numerics.products, threads);
  if (sys::env().verbose_dispatch && z.scanned > 0) fmt::print(stderr, "zeros: {}\n", models::summary(z));
  return model;
}

std::tm local_time(const Runner& runner) {
  const auto now = static_cast<std::time_t>(runner.agreed(static_cast<double>(std::time(nullptr))));
  std::tm time{};
  localtime_r(&now, &time);
  return time;
}

void add_to_system_prompt(nlohmann::ordered_json& messages, const std::string& line) {
  if (!messages.empty() && messages[0].value("role", "") == "system" && messages[0]["content"].is_string()) {
    messages[0]["content"] = line + "\n" + messages[0]["content"].get<std::string>();
  } else {
    messages.insert(messages.begin(), nlohmann::ordered_json{{"role", "system"}, {"content", line}});
  }
}

// Does a newline follow the reasoning of an answer? Templates differ in it, and only rendering shows it.
bool writes_newline_after_reasoning(const text::ChatTemplate& chat, const std::tm& now) {
  constexpr const char* kReasoning = "reasoning-of-a-probe";
  const nlohmann::ordered_json question = {{"role", "user"}, {"content", "question"}},
                               answer = {
                                   {"role", "assistant"}, {"content", "answer"}, {"reasoning_content", kReasoning}};
  try {
    const std::string text = chat.render({{"messages", {question, answer}}, {"add_generation_prompt", false}}, now);
    return text.find(std::string(kReasoning) + "\n") != text.npos;
  } catch (const Error&) {  // it takes no such conversation
    return false;
  }
}

void drop_final_newlines_of_reasoning(nlohmann::ordered_json& messages) {
  for (auto& message : messages) {
    const auto at = message.find("reasoning_content");
    if (at == message.end() || !at->is_string()) continue;
    auto& text = at->get_ref<std::string&>();
    if (text.ends_with('\n')) text.pop_back();
  }
}

// Templates of Nemotron 3 Super, Ultra and Lightning have a variable for each effort that is less than all.
void set_effort(nlohmann::ordered_json& variables, const text::ChatTemplate& chat) {
  const auto effort = variables.find("reasoning_effort");
  if (effort == variables.end() || !effort->is_string()) return;
  const std::string given = effort->get<std::string>();
  const std::string name = (given == "minimal" ? "low" : given) + "_effort";
  const bool less = name == "low_effort" || name == "medium_effort";
  if (less && chat.reads(name) && !variables.contains(name)) variables[name] = true;
}

}  // namespace

LanguageModel::LanguageModel(const std::string& argument, const RunnerOptions& options)
    : path_(models::find_weights(argument)), runner_(std::make_unique<Runner>(load(path_, options), options)) {}

const text::Tokenizer& LanguageModel::tokenizer() {
  if (!tokenizer_) tokenizer_ = text::Tokenizer::load(path_.folder);
  return *tokenizer_;
}

// Nano 2 reads /think and /no_think, Llama-Nemotron a sentence (docs/internals/families.md, Switches for thinking).
// /think alone is part of </think>, which many templates mention.
LanguageModel::ThinkSwitch LanguageModel::switch_of(const text::ChatTemplate& chat) const {
  if (chat.reads("enable_thinking")) return ThinkSwitch::variable;
  if (chat.mentions("/no_think")) return ThinkSwitch::slash;
  return runner_->config().family == "nemotron-nas" ? ThinkSwitch::sentence : ThinkSwitch::none;
}

bool LanguageModel::has_think_switch() {
  (void)chat_template();
  return think_switch_ != ThinkSwitch::none;
}

const text::ChatTemplate& LanguageModel::chat_template() {
  if (!template_) {
    text::ChatTemplate chat = text::ChatTemplate::load(path_.folder);
    think_switch_ = switch_of(chat);
    ends_reasoning_ = writes_newline_after_reasoning(chat, local_time(*runner_));
    template_ = std::move(chat);
  }
  return *template_;
}

std::string LanguageModel::render(const nlohmann::ordered_json& messages, const RenderOptions& options) {
  const text::ChatTemplate& chat = chat_template();
  nlohmann::ordered_json variables = {{"messages", messages}, {"add_generation_prompt", options.answer_next}};
  if (ends_reasoning_) drop_final_newlines_of_reasoning(variables["messages"]);
  if (options.tools) variables["tools"] = *options.tools;
  if (options.variables) variables.update(*options.variables);
  set_effort(variables, chat);
  const bool on = options.think.value_or(false);
  switch (options.think ? think_switch_ : ThinkSwitch::none) {
    case ThinkSwitch::variable:
      variables["enable_thinking"] = on;
      break;
    case ThinkSwitch::slash:
      add_to_system_prompt(variables["messages"], on ? "/think" : "/no_think");
      break;
    case ThinkSwitch::sentence:
      add_to_system_prompt(variables["messages"], on ? "detailed thinking on" : "detailed thinking off");
      break;
    case ThinkSwitch::none:
      if (!on || options.think_if_possible) break;
      fail("think", {.what = "this model's chat template has no switch for thinking",
                     .got = "on",
                     .hint = "off, or instructions as the model's authors give them (--system)"});
  }
  return chat.render(variables, local_time(*runner_));
}

Thinking LanguageModel::thinking_after(std::string_view prompt, std::optional<bool> think) {
  if (ends_in_think(prompt)) return Thinking::open;
  const bool closed = prompt.substr(0, prompt.find_last_not_of(kThinkSpace) + 1).ends_with(kThinkEnd);
  const bool thinks = runner_->config().family == "nemotron-nas" || (template_ && template_->mentions(kThinkEnd));
  if (!thinks || closed) return Thinking::none;
  return think.value_or(true) || (template_ && !has_think_switch()) ? Thinking::may_open : Thinking::none;
}

ReasoningBudget LanguageModel::reasoning_budget(int64_t tokens, int64_t grace) {
  if (tokens < 0) return {};
  (void)tokenizer();
  return {.tokens = tokens,
          .grace = grace,
          .text_of = [this](int32_t id) { return is_silent(id) ? std::string() : tokenizer_->bytes_of(id); },
          .closing = tokenizer().encode("\n</think>\n", false),
          .closing_of_line = tokenizer().encode("</think>\n", false)};
}

grammar::Grammars& LanguageModel::grammars() {
  if (!grammars_) {
    (void)tokenizer();
    grammars_ = std::make_unique<grammar::Grammars>([this] {
      std::vector<std::string> tokens;
      tokens.reserve(static_cast<size_t>(tokenizer_->vocab_size()));
      const std::string tag(1, grammar::kTagMark);
      for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id)
        tokens.push_back(is_silent(id) ? "" : (tokenizer_->is_added(id) ? tag : "") + tokenizer_->bytes_of(id));
      return std::make_shared<const grammar::TokenTrie>(tokens, runner_->config().eos);
    });
  }
  return *grammars_;
}

grammar::CallForm LanguageModel::call_form() {
  const text::ChatTemplate& chat = chat_template();
  if (chat.mentions("<TOOLCALL>")) return grammar::CallForm::list;
  if (chat.mentions("<function=")) return grammar::CallForm::xml;
  const bool bare = !chat.mentions("<tool_call>") && chat.mentions("{\"name\": function name");
  return bare ? grammar::CallForm::bare : grammar::CallForm::json;
}

bool LanguageModel::is_silent(int32_t id) { return engine::is_silent(tokenizer(), id); }

SamplingOptions sampling_of(const io::ModelPath& path, const SamplingOptions& otherwise) {
  SamplingOptions s = otherwise;
  if (path.is_gguf()) {
    const io::Gguf gguf(path.weights);
    const auto number = [&](const char* key, double unset, double least, double most) {
      const double value = gguf.number_of(key).value_or(unset);
      if (value < least || value > most)
        fail(gguf.where(), {.what = fmt::format("{} is out of range", key),
                            .got = fmt::format("{:g}", value),
                            .expected = fmt::format("{:g} to {:g}", least, most)});
      return value;
    };
    s.temperature = number("general.sampling.temp", s.temperature, 0, 100);
    s.top_k = std::max<int64_t>(gguf.int_of("general.sampling.top_k").value_or(s.top_k), 0);
    s.top_p = number("general.sampling.top_p", s.top_p, 0, 1);
    s.min_p = number("general.sampling.min_p", s.min_p, 0, 1);
    s.repeat_penalty = number("general.sampling.penalty_repeat", s.repeat_penalty, 0.01, 100);
    return s;
  }
  const auto file = path.folder / "generation_config.json";
  if (!std::filesystem::exists(file)) return s;
  const io::Json json = io::Json::read(file);
  const bool draws = json.bool_of({"do_sample"}).value_or(json.get({"temperature"}).has_value());
  if (draws) s.temperature = json.number_of({"temperature"}, {0, 100}).value_or(1.0);
  s.top_k = std::max<int64_t>(json.int_of({"top_k"}, {-1, 1 << 24}).value_or(s.top_k), 0);  // -1: of all
  s.top_p = json.number_of({"top_p"}, {0, 1}).value_or(s.top_p);
  s.min_p = json.number_of({"min_p"}, {0, 1}).value_or(s.min_p);
  s.repeat_penalty = json.number_of({"repetition_penalty"}, {0.01, 100}).value_or(s.repeat_penalty);
  return s;
}

}  // namespace braid::engine
