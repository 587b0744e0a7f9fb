#include "serve/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <random>
#include <utility>

#include "engine/logprobs.h"
#include "io/json.h"
#include "serve/api_error.h"
#include "serve/constraint.h"
#include "sys/error.h"
#include "text/tool_calls.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kStopsMax = 16, kStopBytesMax = 1024, kPromptsMax = 128;

uint64_t random_bits() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

// io::Json has the limits, and names what is wrong.
ordered_json parse(const std::string& text, const char* where) {
  (void)io::Json::parse(text, where);
  return ordered_json::parse(text, nullptr, false);
}

// A field of a request; null counts as absent.
class Fields {
 public:
  explicit Fields(const ordered_json& body) : body_(body) {}
  const ordered_json* find(const char* name) const {
    const auto at = body_.find(name);
    return at == body_.end() || at->is_null() ? nullptr : &*at;
  }
  std::optional<double> number(const char* name, double least, double most) const {
    const ordered_json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() >= least) || !(value->get<double>() <= most))
      refuse(fmt::format("'{}' is not a number from {} to {}", name, least, most));
    return value->get<double>();
  }
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most) const {
    const auto value = number(name, static_cast<double>(least), static_cast<double>(most));
    if (!value) return std::nullopt;
    if (*value != static_cast<double>(static_cast<int64_t>(*value)))
      refuse(fmt::format("'{}' is not a whole number", name));
    return static_cast<int64_t>(*value);
  }
  std::optional<bool> boolean(const char* name) const {
    const ordered_json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) refuse(fmt::format("'{}' is not true or false", name));
    return value->get<bool>();
  }
  // Only its default is available: another value must not pass in silence.
  void only(const char* name, const ordered_json& standard) const {
    const ordered_json* value = find(name);
    if (value && *value != standard)
      refuse(fmt::format("'{}' is not available here, except as {}", name, standard.dump()));
  }

 private:
  const ordered_json& body_;
};

std::vector<std::string> stops_of(const Fields& fields) {
  const ordered_json* stop = fields.find("stop");
  if (!stop) return {};
  std::vector<std::string> out;
  for (const ordered_json& text : stop->is_array() ? *stop : ordered_json::array({*stop})) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
        text.get_ref<const std::string&>().size() > kStopBytesMax)
      refuse(fmt::format("'stop' is not a text, or a list of texts, of 1 to {} bytes", kStopBytesMax));
    out.push_back(text);
  }
  if (out.size() > kStopsMax) refuse(fmt::format("'stop' has more than {} texts", kStopsMax));
  return out;
}

engine::SamplingOptions sampling_of(const Fields& f, const Defaults& defaults) {
  engine::SamplingOptions s = defaults.sampling;
  s.temperature = f.number("temperature", 0, 100).value_or(s.temperature);
  s.top_p = f.number("top_p", 0, 1).value_or(s.top_p);
  s.top_k = std::max<int64_t>(f.integer("top_k", -1, 1 << 24).value_or(s.top_k), 0);
  s.min_p = f.number("min_p", 0, 1).value_or(s.min_p);
  s.repeat_penalty = f.number("repetition_penalty", 0.01, 100).value_or(s.repeat_penalty);
  s.presence_penalty = f.number("presence_penalty", -2, 2).value_or(s.presence_penalty);
  s.frequency_penalty = f.number("frequency_penalty", -2, 2).value_or(s.frequency_penalty);
  constexpr int64_t kSeedMax = int64_t{1} << 53;
  if (const auto seed = f.integer("seed", -kSeedMax, kSeedMax))
    s.seed = static_cast<uint64_t>(*seed);
  else if (!defaults.seeded)
    s.seed = random_bits();
  return s;
}

// What both kinds of request have.
Asked begin(const Fields& f, const Defaults& defaults, const char* prefix) {
  f.only("n", 1);
  f.only("logit_bias", ordered_json::object());
  f.only("functions", ordered_json::array());
  Asked asked{
      .id = fmt::format("{}-{:016x}", prefix, random_bits()), .created = std::time(nullptr), .model = defaults.model};
  asked.work.request.generate.sampling = sampling_of(f, defaults);
  asked.work.request.generate.ignore_eos = f.boolean("ignore_eos").value_or(false);
  asked.work.stops = stops_of(f);
  asked.stream = f.boolean("stream").value_or(false);
  if (const ordered_json* options = f.find("stream_options")) {
    if (!options->is_object()) refuse("'stream_options' is not an object");
    asked.usage = Fields(*options).boolean("include_usage").value_or(false);
  }
  return asked;
}

void limit_tokens(Asked& asked, std::optional<int64_t> tokens, engine::LanguageModel& model) {
  const int64_t context = model.runner().options().context, prompt = std::ssize(asked.work.request.prompt);
  if (prompt == 0) refuse("the prompt has no tokens");
  if (prompt >= context)
    throw ApiError(
        400, "exceed_context_size_error",
        fmt::format("the prompt has {} tokens, and the context has room for {} with an answer", prompt, context - 1));
  asked.work.request.generate.tokens_max = std::min(tokens.value_or(context), context - prompt);
}

void constrain(Asked& asked, const ordered_json& body, engine::LanguageModel& model) {
  asked.work.request.generate.constraint = constraint_of(body, asked.tools, asked.work.thinking, model);
  asked.work.request.generate.thinking = asked.work.thinking;
}

// ---- chat -----------------------------------------------------------------------------------------------------------

// A message as templates take it: parts of text become one string, arguments that are text become objects.
ordered_json message_of(const ordered_json& m) {
  if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) refuse("a message has no role");
  ordered_json out = m;
  if (out["role"] == "developer") out["role"] = "system";
  ordered_json& content = out["content"];
  if (content.is_array()) {
    std::string text;
    for (const ordered_json& part : content) {
      if (!part.is_object() || !part.contains("text") || !part["text"].is_string())
        refuse("a part of a message is not text, and this model reads text alone");
      text += part["text"].get<std::string>();
    }
    content = std::move(text);
  }
  if (content.is_null()) content = "";
  if (!content.is_string()) refuse("the content of a message is neither text nor parts of text");
  if (out.contains("reasoning") && !out.contains("reasoning_content")) out["reasoning_content"] = out["reasoning"];
  if (!out.contains("tool_calls") || !out["tool_calls"].is_array()) return out;
  for (ordered_json& call : out["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      refuse("a tool call has no function");
    ordered_json& arguments = call["function"]["arguments"];
    if (arguments.is_string()) arguments = parse(arguments.get<std::string>(), "arguments");
    if (!arguments.is_object()) refuse("the arguments of a tool call are not a JSON object");
  }
  return out;
}

ordered_json messages_of(const Fields& f) {
  const ordered_json* list = f.find("messages");
  if (!list || !list->is_array() || list->empty()) refuse("'messages' is not a list of messages");
  ordered_json out = ordered_json::array();
  for (const ordered_json& m : *list) out.push_back(message_of(m));
  return out;
}

ordered_json tools_of(const Fields& f) {
  const ordered_json *tools = f.find("tools"), *choice = f.find("tool_choice");
  if (!tools || (choice && *choice == "none")) return {};
  if (!tools->is_array()) refuse("'tools' is not a list of functions");
  for (const ordered_json& tool : *tools) {
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object() ||
        !tool["function"].contains("name"))
      refuse("a tool is not a function with a name");
  }
  return tools->empty() ? ordered_json() : *tools;
}

// chat_template_kwargs wins over reasoning_effort.
std::optional<bool> think_of(const Fields& f) {
  std::optional<bool> think;
  if (const ordered_json* effort = f.find("reasoning_effort")) {
    constexpr const char* kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts))
      refuse("'reasoning_effort' is not none, minimal, low, medium, high or xhigh");
    think = *effort != "none";
  }
  if (const ordered_json* variables = f.find("chat_template_kwargs")) {
    if (!variables->is_object()) refuse("'chat_template_kwargs' is not an object");
    if (const auto given = Fields(*variables).boolean("enable_thinking")) think = given;
  }
  return think;
}

// Where the state of a conversation is worth keeping: after its instructions, which others may share, and before the
// prompt of the answer, which the next turn may render differently.
std::vector<int64_t> marks_of(engine::LanguageModel& model, const ordered_json& messages, engine::RenderOptions options,
                              const std::vector<int32_t>& prompt) {
  options.answer_next = false;
  std::vector<int64_t> marks;
  const auto mark = [&](const ordered_json& part) {
    try {
      const std::vector<int32_t> ids = model.tokenizer().encode(model.render(part, options), false);
      const auto end = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first - ids.begin();
      if (end > 0 && end < std::ssize(prompt) && (marks.empty() || end > marks.back())) marks.push_back(end);
    } catch (const Error&) {  // the template takes no such conversation
    }
  };
  if (messages[0]["role"] == "system" && messages.size() > 1) mark(ordered_json::array({messages[0]}));
  mark(messages);
  return marks;
}

const char* finish_of(const Outcome& outcome, bool calls) {
  if (outcome.generated.finish == engine::Finish::length) return "length";
  return calls ? "tool_calls" : "stop";
}

ordered_json usage_of(const Asked& asked, const Outcome& outcome) {
  const int64_t prompt = std::ssize(asked.work.request.prompt), answer = std::ssize(outcome.generated.ids);
  return {{"prompt_tokens", prompt},
          {"completion_tokens", answer},
          {"total_tokens", prompt + answer},
          {"prompt_tokens_details", {{"cached_tokens", outcome.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", outcome.reasoning_tokens}}}};
}

ordered_json calls_json(const std::vector<text::ToolCall>& calls, bool indexed) {
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    ordered_json call = ordered_json::object();
    if (indexed) call["index"] = i;
    call["id"] = fmt::format("call_{:016x}", random_bits());
    call["type"] = "function";
    call["function"] = {{"name", calls[i].name}, {"arguments", calls[i].arguments.dump()}};
    out.push_back(std::move(call));
  }
  return out;
}

ordered_json envelope(const Asked& asked, const char* object) {
  return {{"id", asked.id}, {"object", object}, {"created", asked.created}, {"model", asked.model}};
}

std::string sse(const ordered_json& json) {
  return "data: " + json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n\n";
}

}  // namespace

ordered_json parse_body(const std::string& body) {
  ordered_json json = parse(body, "body");
  if (!json.is_object()) refuse("the body is not a JSON object");
  return json;
}

Asked read_chat(const std::string& body, engine::LanguageModel& model, const Defaults& defaults) {
  const ordered_json json = parse_body(body);
  const Fields f(json);
  Asked asked = begin(f, defaults, "chatcmpl");
  asked.logprobs = f.boolean("logprobs").value_or(false);
  if (asked.logprobs && asked.stream) refuse("'logprobs' is not available here in a stream");
  if (asked.logprobs) asked.work.request.generate.logprobs = f.integer("top_logprobs", 0, 20).value_or(0);
  const ordered_json messages = messages_of(f);
  asked.tools = tools_of(f);
  const engine::RenderOptions rendering{.think = think_of(f), .tools = asked.tools.is_null() ? nullptr : &asked.tools};
  const std::string prompt = model.render(messages, rendering);
  asked.work.thinking = engine::ends_in_think(prompt);
  asked.work.request.prompt = model.tokenizer().encode(prompt, false);
  const auto tokens = f.integer("max_completion_tokens", 1, int64_t{1} << 30);
  limit_tokens(asked, tokens ? tokens : f.integer("max_tokens", 1, int64_t{1} << 30), model);
  if (const auto budget = f.integer("thinking_token_budget", 0, int64_t{1} << 30); budget && asked.work.thinking)
    asked.work.request.generate.budget = model.reasoning_budget(*budget);
  constrain(asked, json, model);
  asked.work.request.marks = marks_of(model, messages, rendering, asked.work.request.prompt);
  return asked;
}

ordered_json answer_json(const Asked& asked, const Said& said, const Outcome& outcome, engine::LanguageModel& model) {
  text::ParsedAnswer parsed =
      asked.tools.is_null() ? text::ParsedAnswer{said.content, {}} : text::parse_tool_calls(said.content, asked.tools);
  ordered_json message = {{"role", "assistant"}, {"content", parsed.content}};
  if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
  if (!parsed.calls.empty()) {
    if (parsed.content.empty()) message["content"] = nullptr;
    message["tool_calls"] = calls_json(parsed.calls, false);
  }
  ordered_json out = envelope(asked, "chat.completion");
  ordered_json choice = {{"index", 0},
                         {"message", std::move(message)},
                         {"logprobs", nullptr},
                         {"finish_reason", finish_of(outcome, !parsed.calls.empty())}};
  if (asked.logprobs) choice["logprobs"] = engine::logprobs_json(&model.tokenizer(), outcome.generated.logprobs);
  out["choices"] = ordered_json::array({std::move(choice)});
  out["usage"] = usage_of(asked, outcome);
  return out;
}

std::string Chunks::event(const ordered_json& delta, const char* finish) const {
  ordered_json out = envelope(asked_, asked_.chat ? "chat.completion.chunk" : "text_completion");
  ordered_json choice = {{"index", 0}};
  if (asked_.chat)
    choice["delta"] = delta;
  else
    choice["text"] = delta.value("content", "");
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish ? ordered_json(finish) : ordered_json();
  out["choices"] = ordered_json::array({std::move(choice)});
  if (asked_.usage) out["usage"] = nullptr;
  return sse(out);
}

std::string Chunks::begin() const {
  return asked_.chat ? event({{"role", "assistant"}, {"content", ""}}, nullptr) : "";
}

std::string Chunks::text(const Reply::Parts& parts) {
  std::string out;
  if (!parts.reasoning.empty()) out += event({{"reasoning_content", parts.reasoning}}, nullptr);
  held_ += parts.content;
  const size_t length = asked_.tools.is_null() ? held_.size() : text::length_before_calls(held_);
  if (length > 0) out += event({{"content", held_.substr(0, length)}}, nullptr);
  held_.erase(0, length);
  return out;
}

std::string Chunks::end(const Outcome& outcome) {
  if (!outcome.error.empty()) return sse(error_json(500, "server_error", outcome.error)) + "data: [DONE]\n\n";
  const text::ParsedAnswer parsed =
      asked_.tools.is_null() ? text::ParsedAnswer{} : text::parse_tool_calls(held_, asked_.tools);
  std::string out;
  if (!parsed.content.empty()) out += event({{"content", parsed.content}}, nullptr);
  if (!parsed.calls.empty()) out += event({{"tool_calls", calls_json(parsed.calls, true)}}, nullptr);
  out += event(ordered_json::object(), finish_of(outcome, !parsed.calls.empty()));
  if (asked_.usage) {
    ordered_json last = envelope(asked_, asked_.chat ? "chat.completion.chunk" : "text_completion");
    last["choices"] = ordered_json::array();
    last["usage"] = usage_of(asked_, outcome);
    out += sse(last);
  }
  return out + "data: [DONE]\n\n";
}

// ---- completions ----------------------------------------------------------------------------------------------------

std::vector<Asked> read_completions(const std::string& body, engine::LanguageModel& model, const Defaults& defaults) {
  const ordered_json json = parse_body(body);
  const Fields f(json);
  f.only("echo", false);
  f.only("logprobs", nullptr);
  f.only("suffix", nullptr);
  f.only("best_of", 1);
  const ordered_json* prompt = f.find("prompt");
  if (!prompt) refuse("there is no 'prompt'");
  const auto is_ids = [](const ordered_json& p) {
    return p.is_array() && !p.empty() &&
           std::ranges::all_of(p, [](const ordered_json& id) { return id.is_number_integer(); });
  };
  const ordered_json prompts = prompt->is_string() || is_ids(*prompt) ? ordered_json::array({*prompt}) : *prompt;
  if (!prompts.is_array() || prompts.empty() || prompts.size() > kPromptsMax)
    refuse(fmt::format("'prompt' is not text, token ids, or a list of up to {} of them", kPromptsMax));
  std::vector<Asked> out;
  for (const ordered_json& one : prompts) {
    Asked asked = begin(f, defaults, "cmpl");
    asked.chat = false;
    asked.work.splits_thinking = false;
    if (one.is_string()) {
      asked.work.request.prompt = model.tokenizer().encode(one.get<std::string>(), true);
    } else if (is_ids(one)) {
      for (const ordered_json& id : one) {
        const auto value = id.get<int64_t>();
        if (value < 0 || value >= model.runner().config().vocab) refuse(fmt::format("there is no token {}", value));
        asked.work.request.prompt.push_back(static_cast<int32_t>(value));
      }
    } else {
      refuse("'prompt' is not text, token ids, or a list of them");
    }
    limit_tokens(asked, f.integer("max_tokens", 1, int64_t{1} << 30).value_or(16), model);
    constrain(asked, json, model);
    if (asked.stream && prompts.size() > 1) refuse("'stream' is for one prompt");
    out.push_back(std::move(asked));
  }
  return out;
}

ordered_json completions_json(const std::vector<Asked>& asked, const std::vector<Said>& said,
                              const std::vector<const Outcome*>& outcomes) {
  ordered_json out = envelope(asked[0], "text_completion");
  out["choices"] = ordered_json::array();
  int64_t prompt = 0, answer = 0, cached = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    out["choices"].push_back({{"index", i},
                              {"text", said[i].content},
                              {"logprobs", nullptr},
                              {"finish_reason", finish_of(*outcomes[i], false)}});
    prompt += std::ssize(asked[i].work.request.prompt);
    answer += std::ssize(outcomes[i]->generated.ids);
    cached += outcomes[i]->cached_tokens;
  }
  out["usage"] = {{"prompt_tokens", prompt},
                  {"completion_tokens", answer},
                  {"total_tokens", prompt + answer},
                  {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  return out;
}

ordered_json error_json(int status, const std::string& type, const std::string& message) {
  return {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}}}};
}

}  // namespace braid::serve
