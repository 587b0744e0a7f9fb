#include "serve/template_form.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/fields.h"
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

// Nothing but a role and text, to which another message's can be added.
bool is_plain(const ordered_json& message) {
  for (const auto& [key, value] : message.items()) {
    if (key != "role" && key != "content" && !value.empty() && value != "") return false;
  }
  return true;
}

// Null: it has none.
ordered_json id_of(const ordered_json& holder, const char* key) {
  const ordered_json id = holder.value(key, ordered_json());
  return id == "" ? ordered_json() : id;
}

std::string name_of(const ordered_json& holder) {
  const ordered_json name = holder.value("name", ordered_json());
  return name.is_string() ? name.get<std::string>() : "";
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
      ordered_json turn = {{"role", "user"}, {"content", std::exchange(waiting, "")}};
      if (is(m, "user")) {
        append_text(turn, m["content"]);
        out.push_back(m);  // with its other keys
        out.back()["content"] = turn["content"];
        continue;
      }
      out.push_back(std::move(turn));
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
  // The one with the call's id, or else the first without any.
  std::optional<ordered_json> take(const ordered_json& call) {
    const ordered_json id = id_of(call, "id");
    const auto of = [](const ordered_json& result) { return id_of(result, "tool_call_id"); };
    auto at = id.is_null() ? left_.end() : std::ranges::find(left_, id, of);
    if (at == left_.end()) at = std::ranges::find(left_, ordered_json(), of);
    if (at == left_.end()) return std::nullopt;
    ordered_json taken = std::move(*at);
    left_.erase(at);
    return taken;
  }
  std::vector<ordered_json> take_rest() { return std::exchange(left_, {}); }

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
      if (auto result = results.take(call)) out.push_back(*std::move(result));
    }
    for (ordered_json& result : results.take_rest()) out.push_back(std::move(result));
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

// User and assistant by turns, instructions, calls and their results aside: adjacent turns become one, and an empty
// turn stands between those that hold more than text, and between a result and the user's next message.
void alternate_turns(Form& form) {
  ordered_json out = ordered_json::array();
  bool user_next = true;
  for (ordered_json& m : form.messages) {
    if (is(m, "tool") || is(m, "system") || calls(m)) {
      out.push_back(std::move(m));
      continue;
    }
    const bool user = is(m, "user");
    if (user != user_next) {
      if (!out.empty() && out.back()["role"] == m["role"] && is_plain(out.back()) && is_plain(m)) {
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

// Where instructions are what is between two turns.
void alternate_without_instructions(Form& form) {
  fold_later_instructions(form);
  alternate_turns(form);
}

// A result as the user's words, which say what it is: tools may return what reads like the user's.
ordered_json told(const ordered_json& result, std::string name) {
  if (name.empty()) name = name_of(result);
  const std::string head = name.empty() ? "Result: " : "Result of " + name + ": ";
  return {{"role", "user"}, {"content", head + result["content"].get<std::string>()}};
}

void tell_call(ordered_json& message, const ordered_json& call) {
  const ordered_json& function = call["function"];
  append_text(message, "Called " + name_of(function) + " with " + dump(function["arguments"]));
}

// Calls as the assistant's text; their results, in their order, have the names.
void tell_calls(Form& form) {
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < form.messages.size(); ++i) {
    ordered_json m = form.messages[i];
    if (!calls(m)) {
      out.push_back(std::move(m));
      continue;
    }
    Results results(form.messages, i + 1);
    i += results.size();
    std::vector<ordered_json> answers;
    for (const ordered_json& call : m["tool_calls"]) {
      tell_call(m, call);
      auto result = results.take(call);
      if (!result) continue;
      if (name_of(*result).empty()) (*result)["name"] = name_of(call["function"]);
      answers.push_back(*std::move(result));
    }
    m.erase("tool_calls");
    out.push_back(std::move(m));
    for (ordered_json& result : answers) out.push_back(std::move(result));
    for (ordered_json& result : results.take_rest()) out.push_back(std::move(result));
  }
  form.messages = std::move(out);
}

// Calls as the assistant's text, and results, in the order of the calls, as the user's messages, for templates without
// a role for them.
void tell_results(Form& form) {
  ordered_json out = ordered_json::array();
  bool after_result = false;
  const auto add = [&](ordered_json m, bool result) {
    const bool joins = !out.empty() && (result || after_result) && is(m, "user") && is(out.back(), "user") &&
                       is_plain(m) && is_plain(out.back());
    after_result = result;
    if (joins)
      append_text(out.back(), m["content"]);
    else
      out.push_back(std::move(m));
  };
  for (size_t i = 0; i < form.messages.size(); ++i) {
    ordered_json m = form.messages[i];
    if (is(m, "tool")) {
      add(told(m, ""), true);
      continue;
    }
    if (!calls(m)) {
      add(std::move(m), false);
      continue;
    }
    Results results(form.messages, i + 1);
    i += results.size();
    std::vector<ordered_json> said;
    for (const ordered_json& call : m["tool_calls"]) {
      tell_call(m, call);
      if (const auto result = results.take(call)) said.push_back(told(*result, name_of(call["function"])));
    }
    for (const ordered_json& result : results.take_rest()) said.push_back(told(result, ""));
    m.erase("tool_calls");
    add(std::move(m), false);
    for (ordered_json& result : said) add(std::move(result), true);
  }
  form.messages = std::move(out);
}

void tell_results_by_turns(Form& form) {
  tell_results(form);
  alternate_without_instructions(form);
}

// The least first.
constexpr std::array<void (*)(Form&), 10> kChanges = {
    fold_later_instructions,        describe_tools,        part_calls, shorten_ids,  alternate_turns,
    alternate_without_instructions, fold_all_instructions, tell_calls, tell_results, tell_results_by_turns};

// Marks in what a template may leave out: instructions, calls and results. What they say may stand elsewhere in the
// prompt, and templates take words for themselves out of them (/no_think), so that only a mark shows it.
class Marks {
 public:
  void put(std::string& text, const char* between) {
    if (text.find_first_not_of(" \t\r\n") == text.npos) return;
    text += between + prefix_ + std::to_string(count_++) + kEnd;
  }
  size_t count() const { return count_; }
  // In one pass, since an agent's conversation has thousands.
  size_t left_out_of(std::string_view prompt) const {
    std::vector<bool> seen(count_);
    for (size_t at = prompt.find(prefix_); at != prompt.npos; at = prompt.find(prefix_, at + 1)) {
      const char* first = prompt.data() + at + prefix_.size();
      size_t number = 0;
      const auto [end, status] = std::from_chars(first, prompt.data() + prompt.size(), number);
      if (status == std::errc{} && number < count_ && end < prompt.data() + prompt.size() && *end == kEnd)
        seen[number] = true;
    }
    return static_cast<size_t>(std::ranges::count(seen, false));
  }

 private:
  static constexpr char kEnd = 'z';
  std::string prefix_ = random_id("mark") + "x";
  size_t count_ = 0;
};

Marks mark_parts(ordered_json& messages) {
  Marks marks;
  for (ordered_json& m : messages) {
    if (is(m, "system") || is(m, "tool")) marks.put(m["content"].get_ref<std::string&>(), " ");
    if (!calls(m)) continue;
    for (ordered_json& call : m["tool_calls"]) {
      ordered_json& name = call["function"]["name"];
      if (name.is_string()) marks.put(name.get_ref<std::string&>(), "_");
    }
  }
  return marks;
}

// A form as the template renders it. `wrong`: its refusal, or how many parts it leaves out; empty: nothing.
struct Rendered {
  std::optional<std::string> prompt{};
  std::string wrong{};
  size_t left_out = 0;
};

class Search {
 public:
  Search(engine::LanguageModel& model, const engine::RenderOptions& options) : model_(model), options_(options) {}

  Rendered render(const Form& form) {
    options_.tools = form.tools.is_null() ? nullptr : &form.tools;
    Rendered out;
    try {
      out.prompt = model_.render(form.messages, options_);
    } catch (const Error& e) {
      out.wrong = e.what();
      return out;
    }
    out.left_out = parts_left_out(form.messages);
    if (out.left_out > 0) out.wrong = std::to_string(out.left_out);
    return out;
  }

  // One change after another, beginning anew after each that changes what is wrong; `form` becomes the one that was
  // rendered with the least left out.
  std::optional<std::string> find(Form& form) {
    std::array<bool, kChanges.size()> made{};
    Form now = form;
    Rendered at = render(now), best = at;
    for (size_t i = 0; i < kChanges.size() && !at.wrong.empty(); ++i) {
      Form changed = now;
      if (!made[i]) kChanges[i](changed);
      if (made[i] || changed == now) continue;
      Rendered then = render(changed);
      if (then.wrong == at.wrong || (at.prompt && then.left_out > at.left_out)) continue;
      now = std::move(changed);
      at = std::move(then);
      if (at.prompt && (!best.prompt || at.left_out < best.left_out)) {
        best = at;
        form = now;
      }
      made[i] = true;
      i = SIZE_MAX;  // from the first again
    }
    return best.prompt;
  }

 private:
  size_t parts_left_out(ordered_json messages) {
    const Marks marks = mark_parts(messages);
    if (marks.count() == 0) return 0;
    try {
      return marks.left_out_of(model_.render(messages, options_));
    } catch (const Error&) {  // of the marks alone
      return 0;
    }
  }

  engine::LanguageModel& model_;
  engine::RenderOptions options_;
};

}  // namespace

std::string render_in_form(engine::LanguageModel& model, ordered_json& messages, ordered_json& tools,
                           const engine::RenderOptions& options) {
  Form form{messages, tools};
  const std::optional<std::string> prompt = Search(model, options).find(form);
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
