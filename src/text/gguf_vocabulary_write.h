// The tokenizer and the chat template of a folder as the metadata of a GGUF file: llama.cpp's lists of tokens, kinds
// and merges, or scores of SentencePiece's pieces, and the whole tokenizer.json besides, from which Braid and others
// read exactly what the folder had.
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
  std::vector<std::string> notes;  // what llama.cpp will do otherwise, a sentence each
};

struct GgufVocabularyOptions {
  int64_t size = 0;  // rows of the embedding: ids without a token are named and never come out
  std::optional<int64_t> bos{};
  std::vector<int64_t> ends{};  // ids at which an answer ends
};

// A folder without tokenizer.json has no vocabulary, and its file runs by token ids. Error for a malformed one, or one
// with more tokens than the embedding has rows.
GgufVocabulary gguf_vocabulary(const std::filesystem::path& folder, const GgufVocabularyOptions& options);

}  // namespace braid::text
