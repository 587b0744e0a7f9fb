// The tokenizer and the chat template inside a GGUF file, in the form of Hugging Face's files: what is in
// tokenizer.ggml.* becomes the text of a tokenizer.json, so that there is one reader and one way to encode.
//   https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "io/gguf.h"
#include "text/tokenizer_config.h"

namespace braid::text {

// tokenizer.ggml.token_type
struct GgufToken {
  enum Type : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
};

bool has_tokenizer(const std::filesystem::path& folder_or_gguf);

// What Tokenizer::parse reads. A tokenizer.json stored in the file (tokenizer.huggingface.json) is returned as it is;
// other files name their pre-tokenizer in tokenizer.ggml.pre (gpt2) or have scores of SentencePiece pieces (llama), and
// lack the strip and single-word flags of added tokens. Error when there is no tokenizer, its kind or pre-tokenizer is
// unknown, or its lists do not match.
std::string tokenizer_json(const io::Gguf& file);

// The special tokens that templates read, and the templates.
TokenizerConfig tokenizer_config(const io::Gguf& file);

}  // namespace braid::text
