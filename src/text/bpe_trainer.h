// Trains a byte-level BPE vocabulary and writes it as a tokenizer.json that Braid and Hugging Face's library read. Text
// is cut into pieces, equal pieces are stored once, and the most common adjacent pair becomes a token until the
// vocabulary is full. Counts are updated incrementally, so that a merge costs only what it changes. Ties go to the pair
// with the smaller ids, which makes the result token for token that of Hugging Face's BpeTrainer.
//   ids: the added tokens, the 256 bytes in the order of their letters, the merges
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sys/function_ref.h"
#include "text/added_tokens.h"
#include "text/pretokenizer.h"

namespace braid::text {

// What cuts text into pieces: GPT-2's expression, that of Tekken and Nemotron (every digit is a piece), and one for
// very small models that calculate and spell (so is every letter outside a lowercase word).
extern const std::string_view kGpt2Pieces, kNemotronPieces, kSignPieces;

struct BpeTrainerOptions {
  struct Added {
    std::string content;
    bool special = true;
  };
  int64_t vocabulary = 0;  // tokens in total; fewer if no pair is left
  std::vector<Added> added{};
  std::string pieces{kNemotronPieces};
  int64_t count_min = 2;  // rarer pairs do not become tokens
};

class BpeTrainer {
 public:
  static constexpr int64_t kVocabularyMax = 1 << 22;
  // Error when the vocabulary has no room for bytes and added tokens, or an added token is empty or duplicated.
  explicit BpeTrainer(BpeTrainerOptions options);
  using Progress = sys::FunctionRef<void(int64_t)>;
  // Counts the pieces of `text`; added tokens are cut out of it. Error when it is not UTF-8. `progress` receives the
  // bytes of the pieces so far.
  void add(
      std::string_view text, const std::string& where, const Progress& progress = [](int64_t) {});
  int64_t distinct_pieces() const { return static_cast<int64_t>(pieces_.size()); }
  struct Trained {
    std::string json;  // the text of tokenizer.json
    int64_t tokens = 0, merges = 0;
  };
  // Error when nothing was added. `progress` receives the number of tokens so far.
  Trained train(const Progress& progress = [](int64_t) {}) const;

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
