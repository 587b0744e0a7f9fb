// What a model says about its tokenizer besides tokenizer.json: the names of the special tokens and the chat
// template, which is a separate file (chat_template.jinja) or a string in tokenizer_config.json.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace braid::text {

struct NamedTemplate {
  std::string name, source;
};

struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
  std::optional<std::string> chat_template;    // the only one, or that named "default"
  std::string template_name;                   // where chat_template comes from, for messages
  std::vector<NamedTemplate> named_templates;  // all of a list of templates: "default", "tool_use", ...

  // Of a folder, or of a GGUF file. Missing files leave their fields empty. Error on one that cannot be read.
  static TokenizerConfig load(const std::filesystem::path& path);
};

}  // namespace braid::text
