#include "serve/tokens.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/openai.h"
#include "text/tokenizer.h"

namespace braid::serve {

using nlohmann::ordered_json;

namespace {

// Of one request: a reply is many times as large as what it is made of.
constexpr size_t kTextMax = size_t{8} << 20, kIdsMax = size_t{1} << 20;

void limit(const char* field, size_t got, size_t most, const char* unit) {
  if (got > most) refuse(fmt::format("'{}' has {} {}, at most {} are read", field, got, unit, most), field);
}

}  // namespace

ordered_json tokens_json(const std::string& body, engine::LanguageModel& model, const Defaults& defaults) {
  const ordered_json json = parse_body(body);
  const Fields f(json);
  if (f.find("messages")) {
    const Asked asked = read_chat_json(json, model, defaults, {.limited = false});
    const std::vector<int32_t>& prompt = asked.work.request.prompt;
    return {{"tokens", prompt}, {"count", prompt.size()}, {"max_model_len", model.runner().options().context}};
  }
  const auto content = f.text("content"), text = content ? content : f.text("prompt");
  if (!text) refuse("there is no text: \"content\", \"prompt\" or \"messages\"", "content");
  limit(content ? "content" : "prompt", text->size(), kTextMax, "bytes");
  const bool special = f.boolean("add_special").value_or(f.boolean("add_special_tokens").value_or(!content));
  const auto ids = model.tokenizer().encode(*text, special);
  return {{"tokens", ids}, {"count", ids.size()}};
}

ordered_json text_json(const std::string& body, engine::LanguageModel& model) {
  const ordered_json json = parse_body(body);
  const ordered_json* tokens = Fields(json).find("tokens");
  if (!tokens || !tokens->is_array()) refuse("'tokens' is not a list of token ids", "tokens");
  limit("tokens", tokens->size(), kIdsMax, "ids");
  std::vector<int32_t> ids;
  ids.reserve(tokens->size());
  for (const ordered_json& id : *tokens) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= model.runner().config().vocab)
      refuse("'tokens' holds what is not a token id: " + dump(id), "tokens");
    ids.push_back(id.get<int32_t>());
  }
  const std::string decoded = model.tokenizer().decode(ids, false);
  return {{"content", decoded}, {"prompt", decoded}};
}

}  // namespace braid::serve
