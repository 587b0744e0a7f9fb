#include "serve/template_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/error.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;

struct Form {
  ordered_json messages, tools;
  bool operator==(const Form& other) const { return messages == other.messages && tools == other.tools; }
};

bool is(const ordered_json& message, const char* role) { return message["role"] == role; }
bool calls(const ordered_json& message) { return message.contains("tool_calls"); }

void append_text(ordered_json& message, const std::string& more) {
  const std::string text = message["content"].get<std::string>();
  message["content"] = text.empty() || more.empty() ? text + more : text + "\n\n" + more;
}

// Instructions: those after the first message alone, or all of them. In front of the user's next message, or behind the
// one before.
void fold_instructions(Form& form, bool first_too) {
  ordered_json out = ordered_json::array();
  std::string waiting;
  for (const ordered_json& m : form.messages) {
    if ((first_too || !out.empty()) && is(m, "system")) {
      if (!out.empty() && is(out.back(), "user"))
        append_text(out.back(), m["content"]);
      else
        waiting += (waiting.empty() ? "" : "\n\n") + m["content"].get<std::string>();
      continue;
    }
    if (!waiting.empty()) {
      out.push_back({{"role", "user"}, {"content", std::exchange(waiting, "")}});
      if (is(m, "user")) {
        append_text(out.back(), m["content"]);
        continue;
      }
    }
    out.push_back(m);
  }
  if (!waiting.empty()) out.push_back({{"role", "user"}, {"content", waiting}});
  form.messages = std::move(out);
}
void fold_later_instructions(Form& form) { fold_instructions(form, false); }
void fold_all_instructions(Form& form) { fold_instructions(form, true); }

void describe_tools(Form& form) {
  for (ordered_json& tool : form.tools) {
    ordered_json& function = tool["function"];
    if (function.value("description", ordered_json()).is_null()) function["description"] = "";
    if (function.value("parameters", ordered_json()).is_null()) function["parameters"] = {{"type", "object"}};
    ordered_json& parameters = function["parameters"];
    if (parameters.value("properties", ordered_json()).is_null()) parameters["properties"] = ordered_json::object();
  }
}

// The results that follow a turn with calls, of which each may take its own.
class Results {
 public:
  Results(const ordered_json& messages, size_t first) {
    while (first < messages.size() && is(messages[first], "tool")) left_.push_back(messages[first++]);
  }
  size_t size() const { return left_.size(); }
  void take(const ordered_json& call, ordered_json& out) {
    const ordered_json id = call.value("id", ordered_json());
    const auto answers = [&](const ordered_json& result) {
      return !id.is_null() && result.value("tool_call_id", ordered_json()) == id;
    };
    const auto at = std::ranges::find_if(left_, answers);
    if (at == left_.end()) return;
    out.push_back(std::move(*at));
    left_.erase(at);
  }
  void take_rest(ordered_json& out) {
    for (ordered_json& result : std::exchange(left_, {})) out.push_back(std::move(result));
  }

 private:
  std::vector<ordered_json> left_;
};

// A turn for each call, followed by its result.
void part_calls(Form& form) {
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < form.messages.size(); ++i) {
    const ordered_json& m = form.messages[i];
    if (!calls(m) || m["tool_calls"].size() < 2) {
      out.push_back(m);
      continue;
    }
    Results results(form.messages, i + 1);
    i += results.size();
    ordered_json turn = m;
    for (const ordered_json& call : m["tool_calls"]) {
      turn["tool_calls"] = ordered_json::array({call});
      out.push_back(std::exchange(turn, {{"role", "assistant"}, {"content", ""}}));
      results.take(call, out);
    }
    results.take_rest(out);
  }
  form.messages = std::move(out);
}

// Nine letters and digits, as Mistral's templates demand; the same for the same id.
void shorten(ordered_json& holder, const char* key) {
  constexpr std::string_view kOf = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr size_t kLength = 9;
  const std::string id =
      holder.contains(key) && holder[key].is_string() ? holder[key].get<std::string>() : std::string();
  if (id.size() == kLength && id.find_first_not_of(kOf) == id.npos) return;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string out;
  for (size_t i = 0; i < kLength; ++i, hash /= kOf.size()) out += kOf[hash % kOf.size()];
  holder[key] = out;
}

void shorten_ids(Form& form) {
  for (ordered_json& m : form.messages) {
    if (is(m, "tool")) shorten(m, "tool_call_id");
    if (!calls(m)) continue;
    for (ordered_json& call : m["tool_calls"]) shorten(call, "id");
  }
}

// User and assistant by turns, calls and their results aside: adjacent turns become one, and an empty turn stands
// between a result and the user's next message.
void alternate_turns(Form& form) {
  fold_later_instructions(form);
  ordered_json out = ordered_json::array();
  bool user_next = true;
  for (ordered_json& m : form.messages) {
    if (is(m, "tool") || is(m, "system") || calls(m)) {
      out.push_back(std::move(m));
      continue;
    }
    const bool user = is(m, "user");
    if (user != user_next) {
      if (!out.empty() && out.back()["role"] == m["role"] && !calls(out.back())) {
        append_text(out.back(), m["content"]);
        continue;
      }
      out.push_back({{"role", user ? "assistant" : "user"}, {"content", ""}});
    }
    user_next = !user;
    out.push_back(std::move(m));
  }
  form.messages = std::move(out);
}

// Results as the user's messages, for templates without a role for them.
void tell_results(Form& form) {
  ordered_json out = ordered_json::array();
  for (ordered_json& m : form.messages) {
    if (is(m, "tool")) m = {{"role", "user"}, {"content", m["content"]}};
    if (is(m, "user") && !out.empty() && is(out.back(), "user"))
      append_text(out.back(), m["content"]);
    else
      out.push_back(std::move(m));
  }
  form.messages = std::move(out);
}

// Instructions of several messages of which one is not in the prompt: the template renders one place of them alone.
bool loses_instructions(const ordered_json& messages, const std::string& prompt) {
  constexpr const char* kAround = " \t\r\n";
  int64_t several = 0;
  bool lost = false;
  for (const ordered_json& m : messages) {
    if (!is(m, "system")) continue;
    const auto& text = m["content"].get_ref<const std::string&>();
    const size_t first = std::min(text.find_first_not_of(kAround), text.size());
    const std::string_view said(text.data() + first, text.find_last_not_of(kAround) + 1 - first);
    ++several;
    lost = lost || prompt.find(said) == prompt.npos;
  }
  return lost && several > 1;
}

// The least first.
constexpr std::array<void (*)(Form&), 7> kChanges = {
    fold_later_instructions, describe_tools,        part_calls,  shorten_ids,
    alternate_turns,         fold_all_instructions, tell_results};

// One after another, beginning anew after each that changes what is wrong with the prompt.
class Search {
 public:
  Search(engine::LanguageModel& model, const engine::RenderOptions& options) : model_(model), options_(options) {}

  // The prompt, if nothing is wrong with it.
  std::optional<std::string> render(const Form& form) {
    options_.tools = form.tools.is_null() ? nullptr : &form.tools;
    try {
      std::string prompt = model_.render(form.messages, options_);
      if (!loses_instructions(form.messages, prompt)) return prompt;
      wrong_ = "loses instructions";
    } catch (const Error& e) {
      wrong_ = e.what();
    }
    return std::nullopt;
  }

  // Changes `form`.
  std::optional<std::string> find(Form& form) {
    std::array<bool, kChanges.size()> made{};
    std::string before = wrong_;
    for (size_t i = 0; i < kChanges.size(); ++i) {
      Form changed = form;
      if (!made[i]) kChanges[i](changed);
      if (made[i] || changed == form) continue;
      const std::optional<std::string> prompt = render(changed);
      if (!prompt && wrong_ == before) continue;
      form = std::move(changed);
      if (prompt) return prompt;
      before = wrong_;
      made[i] = true;
      i = SIZE_MAX;  // from the first again
    }
    return std::nullopt;
  }

 private:
  engine::LanguageModel& model_;
  engine::RenderOptions options_;
  std::string wrong_;
};

}  // namespace

std::string render_in_form(engine::LanguageModel& model, ordered_json& messages, ordered_json& tools,
                           const engine::RenderOptions& options) {
  Search search(model, options);
  Form form{messages, tools};
  std::optional<std::string> prompt = search.render(form);
  if (!prompt) prompt = search.find(form);
  if (prompt) {
    messages = std::move(form.messages);
    tools = std::move(form.tools);
    return *prompt;
  }
  engine::RenderOptions as_sent = options;
  as_sent.tools = tools.is_null() ? nullptr : &tools;
  return model.render(messages, as_sent);
}

}  // namespace braid::serve
