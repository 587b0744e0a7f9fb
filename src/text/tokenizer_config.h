// What a model says about its tokenizer besides tokenizer.json: the names of the special tokens and the chat
// template, which is a separate file (chat_template.jinja) or a string in tokenizer_config.json.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace braid::text {

inline constexpr const char* kTemplatesFolder = "additional_chat_templates";  // NAME.jinja

struct NamedTemplate {
  std::string name, source;
};

struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
  std::map<std::string, std::string> special_tokens;  // every other key that ends in _token and names one too
  std::optional<std::string> chat_template;           // the only one, or that named "default"
  std::string template_name;                          // where chat_template comes from, for messages
  // All of a list of templates, "default", "tool_use", ..., or those of kTemplatesFolder, beside the file.
  std::vector<NamedTemplate> named_templates;

  // Of a folder, or of a GGUF file. Missing files leave their fields empty. Error on one that cannot be read.
  static TokenizerConfig load(const std::filesystem::path& path);
};

}  // namespace braid::text
