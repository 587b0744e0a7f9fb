// Documents as token ids, one after another: mapped from a file of tokens, or in memory if tokenized from text. If
// there are conversations, a mask with one entry per token marks what is trained.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/token_file.h"

namespace braid::data {

class Corpus {
 public:
  Corpus() = default;
  explicit Corpus(io::TokenFile file) : file_(std::move(file)) {}

  // Appends a document; without a mask all of it is trained. `continues`: it belongs with the one before it, so that
  // either both are held out or none.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> trained = {}, bool continues = false);

  int64_t documents() const { return file_ ? file_->documents() : std::ssize(begins_) - 1; }
  int64_t begin(int64_t document) const {
    return file_ ? file_->begin(document) : begins_[static_cast<size_t>(document)];
  }
  int64_t length(int64_t document) const { return begin(document + 1) - begin(document); }
  // Documents that belong together, numbered in their order.
  int64_t group(int64_t document) const { return file_ ? document : groups_[static_cast<size_t>(document)]; }
  int64_t groups() const { return file_ ? file_->documents() : groups_.empty() ? 0 : groups_.back() + 1; }
  bool marked() const { return !trained_.empty(); }  // are there conversations?
  bool conversation(int64_t document) const { return marked() && conversation_[static_cast<size_t>(document)]; }

  // Tokens [first, first + count) of a document, and their mask if there is one: views of the corpus itself, or ids
  // widened into `space`.
  struct Tokens {
    std::span<const int32_t> ids;
    std::span<const uint8_t> trained;
  };
  Tokens read(int64_t document, int64_t first, int64_t count, std::vector<int32_t>& space) const;
  // Of all tokens, where documents begin, and what is trained (content.h).
  uint64_t content(int threads) const;

 private:
  std::span<const int32_t> ids(int64_t from, int64_t count, std::vector<int32_t>& space) const;

  std::optional<io::TokenFile> file_;
  std::vector<int32_t> ids_;
  std::vector<int64_t> begins_{0};
  std::vector<uint8_t> trained_;    // per token; empty if there is no conversation
  std::vector<bool> conversation_;  // per document
  std::vector<int64_t> groups_;     // per document
};

}  // namespace braid::data
