// What turns text into one model's tokens, and where it comes from: the files of a model folder.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "text/template.h"
#include "text/tokenizer.h"

namespace braid::data {

// `tokenizer` and `chat` may be null if the data needs none.
struct Language {
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat = nullptr;
  std::optional<int32_t> end_of_text{};  // closes every document
  int64_t vocabulary = 0;                // ids are in [0, vocabulary)
};

class LanguageFiles {
 public:
  // A folder with tokenizer.json and, if present, a chat template and tokenizer_config.json, whose eos_token ends a
  // text; or a GGUF file or a tokenizer.json alone. Error when there is none, or one of them is malformed.
  explicit LanguageFiles(const std::filesystem::path& folder_or_file);
  // They must not outlive this. `vocabulary` 0: as many ids as the tokenizer has.
  Language language(int64_t vocabulary = 0) const;
  const text::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> chat_;
  std::optional<int32_t> end_of_text_;
};

}  // namespace braid::data
