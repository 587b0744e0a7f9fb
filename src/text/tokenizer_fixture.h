// What the tokenizer's tests share: tiny tokenizers made on the spot.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace braid::text {

using Ids = std::vector<int32_t>;

// A byte-level document: byte b has id b, then the merges' tokens from 256 on. Merges are pairs of plain text.
inline nlohmann::json byte_level_document(const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocab;
  nlohmann::json pairs = nlohmann::json::array();
  const auto spelled = [](const std::string& bytes) {
    std::string out;
    append_spelling(bytes, out);
    return out;
  };
  for (int byte = 0; byte < 256; ++byte) vocab[spelled(std::string(1, static_cast<char>(byte)))] = byte;
  int id = 256;
  for (const auto& [left, right] : merges) {
    vocab[spelled(left + right)] = id++;
    pairs.push_back({spelled(left), spelled(right)});
  }
  return {{"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

// A SentencePiece-like document: <unk>, bytes as <0xNN>, letters a to z, the word mark, and the merges' tokens.
inline nlohmann::json spm_document(const std::vector<std::pair<std::string, std::string>>& merges, bool bytes = true) {
  nlohmann::json vocab{{"<unk>", 0}};
  int id = 1;
  for (int byte = 0; bytes && byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = id++;
  for (char letter = 'a'; letter <= 'z'; ++letter) vocab[std::string(1, letter)] = id++;
  vocab["\u2581"] = id++;
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    vocab[left + right] = id++;
    pairs.push_back(left + " " + right);
  }
  const auto parse = [](const char* text) { return nlohmann::json::parse(text); };
  return {{"added_tokens", nlohmann::json::array()},
          {"normalizer", parse(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                   {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})")},
          {"pre_tokenizer", nullptr},
          {"decoder", parse(R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"},
                                "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})")},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", pairs},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true}}}};
}

inline Tokenizer tokenizer_of(const nlohmann::json& document) { return Tokenizer::parse(document.dump(), "test"); }

}  // namespace braid::text
