#include "data/language.h"

#include "io/gguf.h"
#include "text/tokenizer_config.h"

namespace braid::data {
namespace fs = std::filesystem;

LanguageFiles::LanguageFiles(const fs::path& folder_or_file) : tokenizer_(text::Tokenizer::load(folder_or_file)) {
  if (!fs::is_directory(folder_or_file) && !io::is_gguf(folder_or_file)) return;
  const text::TokenizerConfig config = text::TokenizerConfig::load(folder_or_file);
  if (config.chat_template) chat_ = text::ChatTemplate::load(folder_or_file);
  if (config.eos_token) end_of_text_ = tokenizer_.token_to_id(*config.eos_token);
}

Language LanguageFiles::language(int64_t vocabulary) const {
  return {.tokenizer = &tokenizer_,
          .chat = chat_ ? &*chat_ : nullptr,
          .end_of_text = end_of_text_,
          .vocabulary = vocabulary > 0 ? vocabulary : tokenizer_.vocab_size()};
}

}  // namespace braid::data
