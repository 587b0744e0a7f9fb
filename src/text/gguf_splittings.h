// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre.
//   https://github.com/ggml-org/llama.cpp, src/llama-vocab.cpp (names)
#pragma once
#include <array>
#include <span>

namespace braid::text {

inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* kDigitPattern = R"(\p{N})";

struct GgufSplitting {
  const char* name;
  std::array<const char*, 4> patterns{};  // applied in order, each to the pieces of the one before
  bool ignore_merges = false;             // a piece that is a token stays whole
  bool bos = false;                       // the default
  bool nfc = false;
};

// Among names with the same patterns the most common comes first.
std::span<const GgufSplitting> gguf_splittings();

}  // namespace braid::text
