// Trains a byte-level BPE vocabulary and writes it as a tokenizer.json that Braid and Hugging Face's library read. Text
// is cut into pieces, equal pieces are counted once, and the commonest adjacent pair becomes a token until the
// vocabulary is full. Counts are kept up to date merge by merge, so the work follows what changes. Ties go to the pair
// with the smaller ids: with that the result is, token for token, that of Hugging Face's BpeTrainer.
//   ids: the added tokens, the 256 bytes in the order of their letters, the merges
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/pretokenizer.h"

namespace braid::text {

// What cuts text into pieces: GPT-2's expression, that of Tekken and Nemotron (every digit a piece), and one for very
// small models that calculate and spell (every digit and every letter outside a word in small letters a piece).
extern const std::string_view kGpt2Pieces, kNemotronPieces, kSignPieces;

struct BpeTrainerOptions {
  struct Added {
    std::string content;
    bool special = true;
  };
  int64_t vocabulary = 0;  // tokens in all; may remain fewer when no pair is left
  std::vector<Added> added{};
  std::string pieces{kNemotronPieces};
  int64_t count_min = 2;  // a pair that is seen less often is no token
};

class BpeTrainer {
 public:
  static constexpr int64_t kVocabularyMax = 1 << 22;
  // Error when the vocabulary has no room for bytes and added tokens, or one of those is empty or there twice.
  explicit BpeTrainer(BpeTrainerOptions options);
  // Counts the pieces of `text`; added tokens are cut out of it. Error when it is no UTF-8.
  void add(std::string_view text, const std::string& where);
  int64_t distinct_pieces() const { return static_cast<int64_t>(pieces_.size()); }
  struct Trained {
    std::string json;  // the text of tokenizer.json
    int64_t tokens = 0, merges = 0;
  };
  Trained train() const;  // Error when nothing was added

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::string head() const;

  BpeTrainerOptions options_;
  PreTokenizer pre_tokenizer_;
  AddedTokenFinder finder_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> pieces_;  // and how often each was seen
};

}  // namespace braid::text
