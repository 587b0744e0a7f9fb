#include "serve/asked.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include "serve/api_error.h"
#include "serve/constraint.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kAnswersMax = 128;

// {"token id": bias from -100 to 100}
std::vector<std::pair<int32_t, float>> bias_of(const Fields& f, int64_t vocab) {
  constexpr size_t kBiasesMax = 4096;
  const ordered_json* biases = f.find("logit_bias");
  if (!biases) return {};
  if (!biases->is_object() || biases->size() > kBiasesMax)
    refuse(fmt::format("'logit_bias' is not an object of up to {} token ids", kBiasesMax), "logit_bias");
  std::vector<std::pair<int32_t, float>> out;
  for (const auto& [token, bias] : biases->items()) {
    int32_t id = -1;
    const auto [end, status] = std::from_chars(token.data(), token.data() + token.size(), id);
    if (status != std::errc{} || end != token.data() + token.size() || id < 0 || id >= vocab)
      refuse(fmt::format("'logit_bias' names what is not a token id: {}", ordered_json(token).dump()), "logit_bias");
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= 100))
      refuse("a bias of 'logit_bias' is not a number from -100 to 100", "logit_bias");
    out.emplace_back(id, bias.get<float>());
  }
  return out;
}

std::vector<int32_t> stop_ids_of(const Fields& f, int64_t vocab) {
  constexpr size_t kIdsMax = 256;
  const ordered_json* ids = f.find("stop_token_ids");
  if (!ids) return {};
  if (!ids->is_array() || ids->size() > kIdsMax)
    refuse(fmt::format("'stop_token_ids' is not a list of up to {} token ids", kIdsMax), "stop_token_ids");
  std::vector<int32_t> out;
  for (const ordered_json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id >= vocab)
      refuse("'stop_token_ids' holds what is not a token id: " + dump(id), "stop_token_ids");
    out.push_back(id);
  }
  return out;
}

engine::SamplingOptions sampling_of(const Fields& f, const Defaults& defaults, int64_t vocab) {
  engine::SamplingOptions s = defaults.sampling;
  s.temperature = f.number("temperature", 0, 100).value_or(s.temperature);
  s.top_p = f.number("top_p", 0, 1).value_or(s.top_p);
  s.top_k = std::max<int64_t>(f.integer("top_k", -1, 1 << 24).value_or(s.top_k), 0);
  s.min_p = f.number("min_p", 0, 1).value_or(s.min_p);
  s.repeat_penalty = f.number("repetition_penalty", 0.01, 100).value_or(s.repeat_penalty);
  s.presence_penalty = f.number("presence_penalty", -2, 2).value_or(s.presence_penalty);
  s.frequency_penalty = f.number("frequency_penalty", -2, 2).value_or(s.frequency_penalty);
  s.bias = bias_of(f, vocab);
  if (const auto seed = f.integer("seed", INT64_MIN, INT64_MAX))
    s.seed = static_cast<uint64_t>(*seed);
  else if (!defaults.seeded)
    s.seed = random_bits();
  return s;
}

}  // namespace

Asked begin(const Fields& f, engine::LanguageModel& model, const Defaults& defaults, const char* id_prefix,
            const char* stop) {
  f.only("best_of", 1);
  f.only("use_beam_search", false);
  f.only("bad_words", ordered_json::array());
  for (const char* name : {"functions", "prompt_logprobs", "truncate_prompt_tokens", "allowed_token_ids",
                           "prompt_embeds", "chat_template"})
    f.only(name, nullptr);
  Asked asked{.n = f.integer("n", 1, kAnswersMax).value_or(1),
              .id = random_id(id_prefix),
              .created = std::time(nullptr),
              .model = defaults.model,
              .reasoning_field = defaults.reasoning_field};
  asked.work.request.generate.sampling = sampling_of(f, defaults, model.runner().config().vocab);
  asked.work.request.generate.ignore_eos = f.boolean("ignore_eos").value_or(false);
  asked.work.request.generate.stop_ids = stop_ids_of(f, model.runner().config().vocab);
  asked.work.request.generate.tokens_min = f.integer("min_tokens", 0, int64_t{1} << 30).value_or(0);
  asked.work.stops = f.stops(stop);
  asked.work.stops_shown = f.boolean("include_stop_str_in_output").value_or(false);
  asked.stream = f.boolean("stream").value_or(false);
  if (const ordered_json* options = f.find("stream_options")) {
    if (!options->is_object()) refuse("'stream_options' is not an object", "stream_options");
    asked.usage = Fields(*options).boolean("include_usage").value_or(false);
  }
  asked.work.progress = f.boolean("return_progress").value_or(false) && asked.stream;
  return asked;
}

void limit_tokens(Asked& asked, int64_t tokens, engine::LanguageModel& model) {
  for (const int32_t id : asked.work.request.prompt) {  // a tokenizer may have more tokens than the model has rows
    if (id >= model.runner().config().vocab) refuse(fmt::format("the model has no token {}", id), "prompt");
  }
  const int64_t context = model.runner().options().context, prompt = std::ssize(asked.work.request.prompt);
  if (prompt == 0) refuse("the prompt has no tokens");
  if (const int64_t least = asked.work.request.generate.tokens_min; least > tokens)
    refuse(fmt::format("'min_tokens' is {}, but the answer has at most {} tokens", least, tokens), "min_tokens");
  if (prompt + std::min<int64_t>(tokens, 1) > context)
    throw ApiError(400, "exceed_context_size_error",
                   fmt::format("prompt is too long: {} tokens > {} maximum (the context less a token of an answer)",
                               prompt, context - 1),
                   "", "context_length_exceeded")
        .with_tokens(prompt, context);
  asked.work.request.generate.tokens_max = std::min(tokens, context - prompt);
}

void constrain(Asked& asked, const ordered_json& body, engine::LanguageModel& model) {
  asked.bare_calls = !asked.tools.is_null() && model.call_form() == grammar::CallForm::bare;
  asked.work.request.generate.constraint =
      constraint_of(body, asked.tools, asked.work.request.generate.thinking != engine::Thinking::none, model);
}

Work work_of(const Asked& asked, int64_t i) {
  Work work = asked.work;
  work.progress = work.progress && i == 0;  // the others continue from its prompt
  const int64_t before_last = std::ssize(work.request.prompt) - 1;
  std::vector<int64_t>& marks = work.request.marks;
  if (asked.n > 1 && i == 0 && before_last > 0 && (marks.empty() || marks.back() < before_last))
    marks.push_back(before_last);
  work.request.generate.sampling.seed += static_cast<uint64_t>(i);
  if (i > 0) work.request.prompt_logprobs = -1;  // those of the first are the same
  return work;
}

const char* finish_of(const Outcome& outcome, bool called) {
  if (outcome.generated.finish == engine::Finish::length) return "length";
  return called ? "tool_calls" : "stop";
}

bool is_cut(const Outcome& outcome) { return outcome.generated.finish == engine::Finish::length || outcome.stopped; }

text::ParsedAnswer parsed_answer(const Asked& asked, const Said& said, const Outcome& outcome) {
  if (asked.tools.is_null()) return {said.content, {}};
  return text::parse_tool_calls(said.content, asked.tools, is_cut(outcome), asked.bare_calls);
}

std::string standing_in(const Asked& asked, const Said& said) {
  const bool lacks = asked.nonempty && said.content.find_first_not_of(" \t\r\n") == said.content.npos;
  return lacks ? said.reasoning : "";
}

ordered_json envelope(const Asked& asked, const char* object) {
  return {{"id", asked.id}, {"object", object}, {"created", asked.created}, {"model", asked.model}};
}

ordered_json usage_of(const std::vector<Asked>& asked, const std::vector<const Outcome*>& outcomes) {
  int64_t prompt = 0, answer = 0, cached = 0, reasoning = 0, drafted = 0, accepted = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    answer += std::ssize(outcomes[i]->generated.ids);
    reasoning += outcomes[i]->reasoning_tokens;
    drafted += outcomes[i]->generated.timings.drafted_tokens;
    accepted += outcomes[i]->generated.timings.accepted_tokens;
    const auto n = static_cast<size_t>(asked[0].n);
    if (i % n != 0) continue;
    prompt += std::ssize(asked[i / n].work.request.prompt);
    cached += outcomes[i]->cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", answer},
          {"total_tokens", prompt + answer},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", reasoning},
            {"accepted_prediction_tokens", accepted},
            {"rejected_prediction_tokens", drafted - accepted}}}};
}

std::string sse(const ordered_json& json) { return "data: " + dump(json) + "\n\n"; }

ordered_json error_json(const std::string& type, const std::string& message, const std::string& param,
                        const std::string& code) {
  ordered_json error = {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (!param.empty()) error["param"] = param;
  if (!code.empty()) error["code"] = code;
  return {{"error", std::move(error)}};
}

}  // namespace braid::serve
