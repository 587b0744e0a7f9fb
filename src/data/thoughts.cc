#include "data/thoughts.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "data/shuffle.h"

namespace braid::data {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kOpen = "<think>", kClose = "</think>", kSpace = " \t\r\n";
constexpr const char* kFields[] = {"reasoning_content", "reasoning"};
constexpr uint64_t kKind = 1, kPlace = 2;  // salts

double unit(uint64_t hash, uint64_t salt) { return static_cast<double>(mix(hash, salt) >> 11) * 0x1p-53; }

// Where a message has its thought: a field of its own, or part of the content between tags.
struct Place {
  std::string* text = nullptr;
  size_t begin = 0, end = 0;  // of the thought in it
};

bool is_answer(const ordered_json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

std::optional<Place> thought_in_content(ordered_json& message) {
  if (!message.contains("content") || !message["content"].is_string()) return std::nullopt;
  auto& text = message["content"].get_ref<std::string&>();
  const size_t close = text.find(kClose);
  if (close == text.npos) return std::nullopt;
  const size_t open = text.find(kOpen);
  if (open > close) return Place{&text, 0, close};                  // the prompt opened it
  if (text.find_first_not_of(kSpace) != open) return std::nullopt;  // an answer that mentions the tags
  return Place{&text, open + kOpen.size(), close};
}

std::optional<Place> thought_of(ordered_json& message) {
  if (!is_answer(message)) return std::nullopt;
  for (const char* field : kFields) {
    if (!message.contains(field) || !message[field].is_string()) continue;
    auto& text = message[field].get_ref<std::string&>();
    if (!text.empty()) return Place{&text, 0, text.size()};
  }
  return thought_in_content(message);
}

}  // namespace

Thoughts drawn_thoughts(const ThoughtRules& rules, uint64_t hash) {
  const double drawn = unit(hash, kKind);
  if (drawn < rules.strip) return Thoughts::stripped;
  return drawn < rules.strip + rules.cut ? Thoughts::cut : Thoughts::whole;
}

void strip_thoughts(ordered_json& variables) {
  for (ordered_json& message : variables["messages"]) {
    // Some data have a thought twice.
    if (const auto thought = is_answer(message) ? thought_in_content(message) : std::nullopt) {
      thought->text->erase(0, thought->end + kClose.size());
      thought->text->erase(0, thought->text->find_first_not_of(kSpace));
    }
    if (!message.is_object()) continue;
    for (const char* field : kFields) message.erase(field);
  }
  variables["enable_thinking"] = false;
}

bool cut_last_thought(ordered_json& messages, uint64_t hash) {
  if (messages.empty()) return false;
  const auto thought = thought_of(messages.back());
  if (!thought) return false;
  std::string& text = *thought->text;
  const auto size = static_cast<double>(thought->end - thought->begin);
  const auto drawn = thought->begin + static_cast<size_t>(unit(hash, kPlace) * size);
  const std::string_view before(text.data() + thought->begin, drawn - thought->begin);
  size_t kept = 0;
  for (const char stop : {'\n', ' '}) {
    const size_t at = before.rfind(stop);
    if (kept == 0 && at != before.npos) kept = before.substr(0, at).find_last_not_of(kSpace) + 1;
  }
  if (kept == 0) return false;
  const bool own_line = text[thought->end - 1] == '\n';  // the tag that ends it; templates write that of a field
  text.replace(thought->begin + kept, thought->end - thought->begin - kept, own_line ? "\n" : "");
  return true;
}

}  // namespace braid::data
