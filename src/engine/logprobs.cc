#include "engine/logprobs.h"

#include <nlohmann/json.hpp>
#include <string>

#include "sys/utf8.h"

namespace braid::engine {
namespace {

nlohmann::ordered_json object_of(const text::Tokenizer* tokenizer, const TokenLogprob& t) {
  nlohmann::ordered_json out = {{"id", t.id}};
  if (tokenizer) {
    const std::string bytes = tokenizer->bytes_of(t.id);
    std::string text;
    sys::append_lossy(bytes, false, text);
    out["token"] = text;
    auto& list = out["bytes"] = nlohmann::ordered_json::array();
    for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  }
  out["logprob"] = t.logprob;
  return out;
}

}  // namespace

nlohmann::ordered_json logprobs_json(const text::Tokenizer* tokenizer,
                                     std::span<const std::vector<TokenLogprob>> logprobs) {
  nlohmann::ordered_json content = nlohmann::ordered_json::array();
  for (const std::vector<TokenLogprob>& token : logprobs) {
    nlohmann::ordered_json entry = object_of(tokenizer, token[0]);
    entry["top_logprobs"] = nlohmann::ordered_json::array();
    for (size_t i = 1; i < token.size(); ++i) entry["top_logprobs"].push_back(object_of(tokenizer, token[i]));
    content.push_back(std::move(entry));
  }
  return {{"content", content}};
}

}  // namespace braid::engine
