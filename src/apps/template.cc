// braid template: renders a chat template. One JSON object from standard input gives its text; with --jsonl every line
// is answered by one object, {"text"} or {"error", "kind", "line"}.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "io/model_path.h"
#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "sys/read.h"
#include "text/template.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kExpected = "a .jinja file, a GGUF file, a folder, org/name[@rev] or tiny";
constexpr const char* kInput = "{\"messages\": [...], ...}";

struct TemplateArgs {
  std::string model;
  bool json = false, jsonl = false;
  std::string now;
};

// 2026-01-15T12:00:00, the time optional; without --now this machine's local time.
std::tm clock_of(const std::string& iso) {
  std::tm t{};
  if (iso.empty()) {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &t);
    return t;
  }
  for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"}) {
    std::tm read{};
    const char* end = strptime(iso.c_str(), form, &read);
    if (end == nullptr || *end != '\0') continue;
    t = read;
    timegm(&t);  // the day of the week and of the year
    return t;
  }
  fail("--now", {.what = "is not a date", .got = printable(iso), .expected = "2026-01-15T12:00:00"});
}

ordered_json read_object(const std::string& text, const std::string& where) {
  ordered_json parsed = io::parse_ordered(text, where, kInput, {.keys = io::kOrderedKeysMax, .digits = true});
  if (!parsed.is_object())
    fail(where, {.what = "is not a JSON object", .got = printable(text, 60), .expected = kInput});
  return parsed;
}

ordered_json answer(const text::ChatTemplate& chat, const ordered_json& variables, const std::tm& now) {
  try {
    return {{"text", chat.render(variables, now)}};
  } catch (const text::TemplateError& e) {
    return {{"error", e.text()}, {"kind", e.kind_name()}, {"line", e.line()}};
  }
}

text::ChatTemplate load(const fs::path& model) {
  std::error_code none;
  const std::string ending = model.extension().string(), where = printable(model.string());
  if (fs::is_directory(model, none)) return text::ChatTemplate::load(model);
  if (fs::exists(model, none)) {
    if (io::names_a_file(model) && ending != ".jinja" && ending != ".gguf")
      fail(where, {.what = "is not a chat template", .expected = kExpected});
    return text::ChatTemplate::load(model);
  }
  if (ending == ".jinja") fail(where, {.what = "no such file", .expected = kExpected});
  return text::ChatTemplate::load(io::find_model(model.string()).folder);
}

// A model's template renders a conversation. A .jinja file may render anything: there, and only where the template
// reads `messages`, a key that is nearly that is a mistake.
class MessagesCheck {
 public:
  explicit MessagesCheck(const fs::path& model) {
    std::error_code none;
    required_ = !fs::is_regular_file(model, none) || model.extension() == ".gguf";
    read_ = required_ || sys::read_file(model).find("messages") != std::string::npos;
  }
  void operator()(const ordered_json& variables, const std::string& where) const {
    if (!read_ || variables.contains("messages")) return;
    std::string near;
    for (const auto& [key, value] : variables.items()) {
      if (near.empty() && !sys::nearest(key, {"messages"}).empty()) near = key;
    }
    if (near.empty() && !required_) return;
    fail(where, {.what = "has no messages",
                 .got = printable(near, 60),
                 .expected = kInput,
                 .hint = near.empty() ? "" : "messages"});
  }

 private:
  bool required_ = true, read_ = true;
};

// A template that does not parse answers every line with the same error, so that each line has its answer.
int render_lines(const TemplateArgs& o, const std::tm& now) {
  std::optional<text::ChatTemplate> chat;
  ordered_json broken;
  try {
    chat = load(o.model);
  } catch (const text::TemplateError& e) {
    broken = {{"error", e.text()}, {"kind", e.kind_name()}, {"line", e.line()}};
  }
  const MessagesCheck check(o.model);
  sys::for_each_line("-", [&](const std::string& line, int64_t number) {
    const std::string where = fmt::format("standard input line {}", number);
    const ordered_json variables = read_object(line, where);
    check(variables, where);
    const ordered_json out = chat ? answer(*chat, variables, now) : broken;
    fmt::print("{}\n", out.dump(-1, ' ', true));  // ASCII: one line for readers that split at every Unicode line end
    std::fflush(stdout);                          // the reader waits for this line
  });
  return 0;
}

int render(const TemplateArgs& o) {
  const std::tm now = clock_of(o.now);
  if (o.json && o.jsonl) fail("template", {.what = "both --json and --jsonl are given", .expected = "one of them"});
  if (o.jsonl) return render_lines(o, now);
  const text::ChatTemplate chat = load(o.model);
  const ordered_json variables = read_object(sys::read_standard_input(), "standard input");
  MessagesCheck(o.model)(variables, "standard input");
  const std::string text = chat.render(variables, now);
  fmt::print("{}", o.json ? io::dumped({{"text", text}}) + "\n" : text);
  return 0;
}

}  // namespace

Action setup_template(Cli& cli) {
  auto o = std::make_shared<TemplateArgs>();
  cli.positional("model", o->model,
                 "a folder, a GGUF file, a .jinja file, org/name of the Hugging Face cache, or tiny");
  cli.flag("--json", o->json, "print one JSON object: the text");
  cli.flag("--jsonl", o->jsonl, "answer every line of the input with one JSON object");
  cli.option("--now ISO", o->now, "the date and time that the template sees");
  return [o] { return render(*o); };
}

}  // namespace braid::apps
