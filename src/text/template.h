// Chat templates: a model's Jinja template turns messages and tools into the text that the model was trained on.
// The dialect is that of Hugging Face's transformers: blocks trimmed, no autoescape, immutable values, `tojson` that
// leaves characters as they are, `raise_exception`, `strftime_now`, break, continue and {% generation %}.
// Templates come with downloaded models and are untrusted: time, memory and depth are bounded (Limits).
#pragma once
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "sys/error.h"

namespace braid::text {

// Kind `tmpl` is the template's own refusal (raise_exception, or what the sandbox forbids): its text is meant for the
// user.
class TemplateError : public Error {
 public:
  enum class Kind { tmpl, undefined, syntax, type };
  TemplateError(Kind kind, std::string_view name, int64_t line, const std::string& text);
  Kind kind() const { return kind_; }
  std::string_view kind_name() const;     // "template", "undefined", "syntax", "type"
  int64_t line() const { return line_; }  // 1-based, in the template
  const std::string& text() const { return text_; }

 private:
  Kind kind_;
  int64_t line_;
  std::string text_;
};

struct Limits {
  int64_t steps = 20'000'000;        // operations, or 16 bytes of text; a chat of 1,000 messages takes some 200,000
  int64_t bytes = int64_t{1} << 29;  // total allocated during one rendering
  int64_t output_bytes = int64_t{1} << 26;
  int32_t depth = 1000;  // nesting of expressions, blocks and macro calls
};

class ChatTemplate {
 public:
  // `name` is for messages only. TemplateError of kind syntax when it cannot be parsed.
  static ChatTemplate parse(std::string_view source, std::string name);
  // From a .jinja file, or a model folder: chat_template.jinja, else chat_template of tokenizer_config.json. Where that
  // names several, "default" is used, and "tool_use" for input with tools. A folder's bos_token, eos_token and the
  // other special tokens are variables of its template.
  static ChatTemplate load(const std::filesystem::path& path);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `variables` is an object: messages, tools, add_generation_prompt, bos_token, ... `tools` and `documents` default to
  // none. `now` is the time for strftime_now. TemplateError when the template refuses, fails or exceeds a limit.
  std::string render(const nlohmann::ordered_json& variables, const std::tm& now, const Limits& limits = {}) const;

  // What the template's source uses: a variable or attribute of this name; this text, in a string literal or as it is.
  bool reads(std::string_view name) const;
  bool mentions(std::string_view text) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid::text
