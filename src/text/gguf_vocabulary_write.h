// The tokenizer and the chat template of a folder as the metadata of a GGUF file: llama.cpp's lists of tokens, kinds
// and merges, or scores of SentencePiece's pieces, plus the whole tokenizer.json, from which Braid and others read
// exactly what the folder had.
//   https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/gguf_write.h"

namespace braid::text {

struct GgufVocabulary {
  io::GgufFields fields;
  std::vector<std::string> notes;  // where llama.cpp will differ, a sentence each
};

struct GgufVocabularyOptions {
  int64_t size = 0;  // rows of the embedding: ids without a token get a name and are never produced
  std::optional<int64_t> bos{};
  std::vector<int64_t> ends{};  // ids at which an answer ends
};

// A folder without tokenizer.json has no vocabulary, and its file works with token ids only. Error for a malformed one,
// or one with more tokens than the embedding has rows.
GgufVocabulary gguf_vocabulary(const std::filesystem::path& folder, const GgufVocabularyOptions& options);

}  // namespace braid::text
