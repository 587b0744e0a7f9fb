// Byte-pair encoding: a piece of text becomes symbols, and the adjacent pair of lowest rank (leftmost first) is merged
// until no pair has a rank. Symbols are bytes in a byte-level model and characters otherwise, where characters outside
// the vocabulary fall back to their bytes (<0xNN>) or to the unknown token.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace braid::text {

struct BpeOptions {
  bool byte_level = false;     // decided by the pre-tokenizer; the vocabulary then spells bytes (byte_alphabet.h)
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // no effect on byte-level models, which have a symbol for every byte
  bool fuse_unk = false;       // a run of unknown characters is one unknown token
  std::string unk_token;       // empty: unknown characters are dropped
};

// (left id, right id) -> rank and merged id; flat, linear probing.
class MergeTable {
 public:
  struct Merge {
    int32_t left = -1, right = -1, rank = -1, merged = -1;
  };
  void reserve(int64_t count);
  void set(const Merge& merge);  // a pair listed twice keeps its last rank
  const Merge* find(int32_t left, int32_t right) const;
  int64_t size() const { return count_; }
  std::span<const Merge> slots() const { return slots_; }  // unordered; rank -1 is an empty slot

 private:
  static size_t hash_of(int32_t left, int32_t right);
  std::vector<Merge> slots_;
  int64_t count_ = 0;
};

class Bpe {
 public:
  Bpe() = default;
  // `vocabulary` and `merges` are complete. Error when unk_token is not a token.
  Bpe(BpeOptions options, Vocabulary vocabulary, MergeTable merges, const std::string& where);

  struct Scratch {                        // one per thread; retains its capacity from piece to piece
    explicit Scratch(size_t text_bytes);  // the length of the text sizes the word cache
    struct Symbol {
      int32_t id, prev, next;  // neighbours, -1 at the ends
      int32_t rank, merged;    // of the pair (this, next); rank -1 when there is none or the symbol is gone
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // min-heap of rank << 32 | position
    // Cache of short pieces, one cache line each: text repeats itself. A power of two, or empty.
    struct alignas(64) Word {
      uint8_t size = 0, count = 0;
      char piece[26] = {};
      int32_t ids[9] = {};
    };
    std::vector<Word> words;
  };
  // Appends the ids of `piece` (valid UTF-8, under 2 GiB).
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  std::optional<int32_t> find_token(std::string_view token) const;  // as written in tokenizer.json
  std::string token(int32_t id) const;                              // vocabulary().has(id)
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }

 private:
  bool words_are_apart() const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_uncached(std::string_view piece, uint64_t hash, Scratch& scratch, std::vector<int32_t>& ids) const;
  void add_symbols(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const;
  void add_fallback(std::string_view character, bool& unknown, std::vector<Scratch::Symbol>& symbols) const;
  void merge(Scratch& scratch) const;
  void rank_pair(Scratch& scratch, int32_t at) const;

  BpeOptions options_;
  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};  // byte-level: the byte's symbol; otherwise its fallback token; -1 when missing
  int32_t unk_id_ = -1;
  bool splits_words_ = false;  // no merge joins a word mark to what precedes it
};

}  // namespace braid::text
