#include "serve/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/answer_text.h"
#include "serve/api_error.h"
#include "sys/utf8.h"

namespace braid::serve {
namespace {

using engine::TokenLogprob;
using nlohmann::ordered_json;

constexpr size_t kPromptsMax = 1024;
constexpr int64_t kTokensDefault = 16;

bool is_ids(const ordered_json& p) {
  return p.is_array() && !p.empty() &&
         std::ranges::all_of(p, [](const ordered_json& id) { return id.is_number_integer(); });
}

std::vector<int32_t> ids_of(const ordered_json& prompt, engine::LanguageModel& model) {
  if (prompt.is_string()) return model.tokenizer().encode(prompt.get<std::string>(), true);
  if (!is_ids(prompt)) refuse("'prompt' is not text, token ids, or a list of them", "prompt");
  std::vector<int32_t> out;
  for (const ordered_json& id : prompt) {
    const bool fits = !id.is_number_unsigned() || id.get<uint64_t>() <= INT64_MAX;
    const int64_t value = fits ? id.get<int64_t>() : -1;
    if (value < 0 || value >= model.runner().config().vocab) refuse("there is no token " + id.dump(), "prompt");
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

// The number of alternatives; true, as some clients send, is none of them.
std::optional<int64_t> alternatives_of(const Fields& f) {
  const ordered_json* given = f.find("logprobs");
  if (!given) return std::nullopt;
  if (given->is_boolean()) return given->get<bool>() ? std::optional<int64_t>(0) : std::nullopt;
  return f.integer("logprobs", 0, 20);
}

std::string text_of(const text::Tokenizer& tokenizer, int32_t id) {
  std::string text;
  sys::append_lossy(tokenizer.bytes_of(id), false, text);
  return text;
}

// The legacy form of log-probabilities: lists that run beside each other. `text_offset` counts characters, as Python
// does, in the choice's text: of the prompt and the answer with `echo`, of the answer alone without. A token that is a
// part of a character has the offset of that character.
class LegacyLogprobs {
 public:
  explicit LegacyLogprobs(const text::Tokenizer& tokenizer, int64_t alternatives)
      : tokenizer_(tokenizer), alternatives_(alternatives) {}

  // `shown`: the text holds it.
  void add(int32_t id, const std::vector<TokenLogprob>* logprobs, bool shown) {
    const std::string text = text_of(tokenizer_, id);
    tokens_.push_back(text);
    offsets_.push_back(offset_);
    if (shown) advance(tokenizer_.bytes_of(id));
    token_logprobs_.push_back(logprobs ? ordered_json((*logprobs)[0].logprob) : ordered_json());
    if (!logprobs) return top_.push_back(nullptr);
    ordered_json top = ordered_json::object();
    const auto end = std::min(logprobs->size(), static_cast<size_t>(alternatives_) + 1);
    for (size_t i = 1; i < end; ++i) {  // of two tokens with one text the likelier
      const std::string key = text_of(tokenizer_, (*logprobs)[i].id);
      if (!top.contains(key)) top[key] = (*logprobs)[i].logprob;
    }
    if (!top.contains(text)) top[text] = (*logprobs)[0].logprob;
    top_.push_back(std::move(top));
  }
  // Of an answer; end tokens and the like are not in its text.
  void add_answer(const std::vector<TokenLogprob>& token) {
    add(token[0].id, &token, !engine::is_silent(tokenizer_, token[0].id));
  }
  ordered_json take() {
    return {{"text_offset", std::exchange(offsets_, ordered_json::array())},
            {"token_logprobs", std::exchange(token_logprobs_, ordered_json::array())},
            {"tokens", std::exchange(tokens_, ordered_json::array())},
            {"top_logprobs", std::exchange(top_, ordered_json::array())}};
  }

 private:
  void advance(const std::string& bytes) {
    held_ += bytes;
    std::string characters;
    held_.erase(0, sys::append_lossy(held_, true, characters));
    offset_ += sys::utf8_count(characters);
  }

  const text::Tokenizer& tokenizer_;
  int64_t alternatives_, offset_ = 0;
  std::string held_;  // the bytes of a character that is not complete
  ordered_json offsets_ = ordered_json::array(), token_logprobs_ = ordered_json::array(),
               tokens_ = ordered_json::array(), top_ = ordered_json::array();
};

// A BOS that was put before a prompt in text is not in its text.
void add_prompt(LegacyLogprobs& out, const Asked& asked, const std::vector<std::vector<TokenLogprob>>& logprobs,
                const text::Tokenizer& tokenizer) {
  const std::vector<int32_t>& prompt = asked.work.request.prompt;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const bool added =
        i == 0 && tokenizer.is_special(prompt[0]) && !asked.prompt_text.starts_with(text_of(tokenizer, prompt[0]));
    out.add(prompt[i], i == 0 ? nullptr : &logprobs.at(i - 1), !added);
  }
}

LegacyLogprobs legacy_of(const Asked& asked, engine::LanguageModel& model) {
  return LegacyLogprobs(model.tokenizer(), asked.work.request.generate.logprobs);
}

class CompletionsStream final : public AnswerStream {
 public:
  CompletionsStream(std::vector<Asked> asked, engine::LanguageModel& model) : asked_(std::move(asked)) {
    for (const Asked& a : asked_) {
      for (int64_t i = 0; i < a.n; ++i) logprobs_.push_back(legacy_of(a, model));
    }
  }

  std::string begin() override {
    std::string out;
    for (size_t i = 0; i < logprobs_.size(); ++i) {
      if (asked(i).echo) out += event(i, asked(i).prompt_text, nullptr);
    }
    return out;
  }
  std::string news(size_t i, const Reply::News& news) override {
    for (const Reply::Token& token : news.tokens_scored) {
      if (!token.logprobs.empty()) logprobs_[i].add_answer(token.logprobs);
    }
    return news.text.content.empty() ? "" : event(i, news.text.content, nullptr);
  }
  std::string end(size_t i, const Outcome& outcome) override { return event(i, "", finish_of(outcome, false)); }
  std::string finish(const std::vector<const Outcome*>& outcomes) override {
    std::string out;
    if (asked_[0].usage) {
      ordered_json last = envelope(asked_[0], "text_completion");
      last["choices"] = ordered_json::array();
      last["usage"] = usage_of(asked_, outcomes);
      out = sse(last);
    }
    return out + "data: [DONE]\n\n";
  }
  std::string fail(int, const std::string& type, const std::string& message) override {
    return sse(error_json(type, message)) + "data: [DONE]\n\n";
  }

 private:
  const Asked& asked(size_t i) const { return asked_[i / static_cast<size_t>(asked_[0].n)]; }
  std::string event(size_t i, const std::string& text, const char* finish) {
    ordered_json out = envelope(asked_[0], "text_completion");
    ordered_json choice = {{"index", i}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (asked(i).logprobs) choice["logprobs"] = logprobs_[i].take();
    if (finish) choice["finish_reason"] = finish;
    out["choices"] = ordered_json::array({std::move(choice)});
    if (asked_[0].usage) out["usage"] = nullptr;
    return sse(out);
  }

  std::vector<Asked> asked_;
  std::vector<LegacyLogprobs> logprobs_;  // by answer
};

}  // namespace

namespace {

// Of prompts: they are kept until the answer is written.
void check_scored(const std::vector<Asked>& all) {
  constexpr int64_t kScoredMax = int64_t{1} << 19;
  int64_t scored = 0;
  for (const Asked& a : all) {
    const engine::Request& request = a.work.request;
    if (request.prompt_logprobs >= 0) scored += std::ssize(request.prompt) * (1 + request.prompt_logprobs);
  }
  if (scored > kScoredMax)
    refuse(fmt::format("the prompts have {} log-probabilities; expected at most {}; try fewer prompts or 'logprobs'",
                       scored, kScoredMax),
           "logprobs");
}

}  // namespace

std::vector<Asked> read_completions(const std::string& body, engine::LanguageModel& model, const Defaults& defaults) {
  const ordered_json json = parse_body(body);
  const Fields f(json);
  f.only("suffix", nullptr);
  const ordered_json* prompt = f.find("prompt");
  if (!prompt) refuse("there is no 'prompt'", "prompt");
  const ordered_json prompts = prompt->is_string() || is_ids(*prompt) ? ordered_json::array({*prompt}) : *prompt;
  if (!prompts.is_array() || prompts.empty() || prompts.size() > kPromptsMax)
    refuse(fmt::format("'prompt' is not text, token ids, or a list of up to {} of them", kPromptsMax), "prompt");
  const bool echo = f.boolean("echo").value_or(false);
  const auto logprobs = alternatives_of(f);
  const int64_t tokens = f.integer("max_tokens", echo ? 0 : 1, int64_t{1} << 30).value_or(kTokensDefault);
  std::vector<Asked> out;
  for (const ordered_json& one : prompts) {
    Asked asked = begin(f, model, defaults, "cmpl-");
    asked.chat = false;
    asked.work.splits_thinking = false;
    asked.work.request.prompt = ids_of(one, model);
    asked.echo = echo;
    if (echo)
      asked.prompt_text =
          one.is_string() ? one.get<std::string>() : model.tokenizer().decode(asked.work.request.prompt, false);
    asked.logprobs = logprobs.has_value();
    asked.work.request.generate.logprobs = logprobs.value_or(-1);
    if (echo) asked.work.request.prompt_logprobs = logprobs.value_or(-1);
    if (echo && asked.stream && logprobs) refuse("'stream' is not available here for 'echo' with 'logprobs'", "stream");
    limit_tokens(asked, tokens, model);
    constrain(asked, json, model);
    if (int64_t{asked.n} * std::ssize(prompts) > static_cast<int64_t>(kPromptsMax))
      refuse(fmt::format("'n' for every prompt makes more than {} answers", kPromptsMax), "n");
    out.push_back(std::move(asked));
  }
  check_scored(out);
  return out;
}

ordered_json completions_json(const std::vector<Asked>& asked, const std::vector<Said>& said,
                              const std::vector<const Outcome*>& outcomes, engine::LanguageModel& model) {
  ordered_json out = envelope(asked[0], "text_completion");
  out["choices"] = ordered_json::array();
  const auto n = static_cast<size_t>(asked[0].n);
  for (size_t i = 0; i < said.size(); ++i) {
    const Asked& a = asked[i / n];
    ordered_json choice = {{"index", i},
                           {"text", a.prompt_text + said[i].content},
                           {"logprobs", nullptr},
                           {"finish_reason", finish_of(*outcomes[i], false)}};
    if (a.logprobs) {
      LegacyLogprobs logprobs = legacy_of(a, model);
      if (a.echo) add_prompt(logprobs, a, outcomes[i / n * n]->generated.prompt_logprobs, model.tokenizer());
      for (const auto& token : outcomes[i]->generated.logprobs) logprobs.add_answer(token);
      choice["logprobs"] = logprobs.take();
    }
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = usage_of(asked, outcomes);
  return out;
}

std::unique_ptr<AnswerStream> completions_stream(std::vector<Asked> asked, engine::LanguageModel& model) {
  return std::make_unique<CompletionsStream>(std::move(asked), model);
}

}  // namespace braid::serve
