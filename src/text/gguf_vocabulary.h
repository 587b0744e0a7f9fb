// The tokenizer and the chat template inside a GGUF file, said as Hugging Face's files say them: what is in
// tokenizer.ggml.* becomes the text of a tokenizer.json, so that there is one reader and one way to encode.
//   https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
#pragma once
#include <filesystem>
#include <string>

#include "io/gguf.h"
#include "text/tokenizer_config.h"

namespace braid::text {

bool has_tokenizer(const std::filesystem::path& folder_or_gguf);

// What Tokenizer::parse reads. A file that holds its tokenizer.json (tokenizer.huggingface.json) gives that; the others
// name by tokenizer.ggml.pre how text is split (gpt2) or score the pieces of SentencePiece (llama), and leave out added
// tokens that strip spaces or match whole words only. Error when there is no tokenizer, its kind or its splitting is
// not known, or its lists do not fit each other.
std::string tokenizer_json(const io::Gguf& file);

// The special tokens that templates read, and the templates.
TokenizerConfig tokenizer_config(const io::Gguf& file);

}  // namespace braid::text
