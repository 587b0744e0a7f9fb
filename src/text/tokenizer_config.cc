#include "text/tokenizer_config.h"

#include <algorithm>

#include "io/json.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "sys/utf8.h"
#include "text/gguf_vocabulary.h"

namespace braid::text {
namespace {

constexpr size_t kTemplateBytesMax = size_t{4} << 20;  // released templates have under 20 KB

// A token is its text, or an object with matching flags.
std::optional<std::string> token_of(const io::Json& config, std::string_view key) {
  const std::optional<io::Json> token = config.get({key});
  if (!token) return std::nullopt;
  return token->is_object() ? token->need({"content"}).as_string() : token->as_string();
}

std::string read_template(const std::filesystem::path& path) {
  const sys::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.size() > kTemplateBytesMax)
    fail(printable(path.string()), {.what = "the chat template is too long", .expected = "at most 4 MiB"});
  if (sys::utf8_valid_prefix(text) != text.size())
    fail(printable(path.string()), {.what = "the chat template is not UTF-8"});
  return std::string(text);
}

// In the order of their names.
std::vector<NamedTemplate> more_templates(const std::filesystem::path& folder) {
  std::vector<NamedTemplate> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder / kTemplatesFolder, none)) {
    if (entry.path().extension() == ".jinja") out.push_back({entry.path().stem().string(), {}});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (NamedTemplate& named : out) named.source = read_template(folder / kTemplatesFolder / (named.name + ".jinja"));
  return out;
}

}  // namespace

TokenizerConfig TokenizerConfig::load(const std::filesystem::path& folder) {
  if (io::is_gguf(folder)) return tokenizer_config(io::Gguf(folder));
  TokenizerConfig out;
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path)) {
    const io::Json config = io::Json::read(path);
    out.bos_token = token_of(config, "bos_token");
    out.eos_token = token_of(config, "eos_token");
    out.pad_token = token_of(config, "pad_token");
    out.unk_token = token_of(config, "unk_token");
    for (const auto& [key, value] : config.members()) {
      if (key.ends_with("_token") && (value.is_string() || (value.is_object() && value.get({"content"}))))
        out.special_tokens.emplace(key, *token_of(config, key));
    }
    const std::optional<io::Json> chat = config.get({"chat_template"});
    out.template_name = "tokenizer_config.json";
    if (chat && chat->is_array()) {
      for (const io::Json& entry : chat->items()) {
        out.named_templates.push_back({entry.need({"name"}).as_string(), entry.need({"template"}).as_string()});
        if (out.named_templates.back().name == "default") out.chat_template = out.named_templates.back().source;
      }
    } else if (chat) {
      out.chat_template = chat->as_string();
    }
  }
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path)) {
    out.chat_template = read_template(path);
    out.template_name = "chat_template.jinja";
    out.named_templates = more_templates(folder);
  }
  return out;
}

}  // namespace braid::text
