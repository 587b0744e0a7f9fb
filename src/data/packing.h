// Two ways to pack documents into rows. StreamSource concatenates the documents and cuts every `length` tokens: nothing
// is lost, only the last row is short, and only the beginnings of documents are stored. PackedSource keeps
// conversations whole: best-fit decreasing bin packing, done once.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "data/corpus.h"
#include "data/source.h"

namespace braid::data {

// Of documents or rows, in `groups` groups, of which each has a number, those that training sees, or with `held_out`
// those it never sees: a share of the groups, chosen by number, whole.
std::vector<int64_t> chosen_of(std::span<const int64_t> group_of, int64_t groups, double validation, bool held_out);
// The same without empty documents.
std::vector<int64_t> chosen_documents(const Corpus& corpus, double validation, bool held_out);

class StreamSource final : public Source {
 public:
  StreamSource(Corpus corpus, std::vector<int64_t> documents, const RowRules& rules);
  int64_t rows() const override { return (ends_.back() + length_ - 1) / length_; }
  void row(int64_t index, RowWriter& out) const override;
  uint64_t content(int threads) const override { return corpus_.content(threads); }

 private:
  Corpus corpus_;
  std::vector<int64_t> documents_;
  std::vector<int64_t> ends_;  // of each in the stream, after a 0
  int64_t length_, context_;
};

class PackedSource final : public Source {
 public:
  // Conversations longer than a row lose what does not fit; other documents are cut into several pieces.
  PackedSource(Corpus corpus, const std::vector<int64_t>& documents, const RowRules& rules);
  int64_t rows() const override { return std::ssize(rows_) - 1; }
  void row(int64_t index, RowWriter& out) const override;
  uint64_t content(int threads) const override { return corpus_.content(threads); }
  int64_t shortened() const { return shortened_; }  // conversations that were truncated

 private:
  struct Piece {
    int64_t document, first, count;  // tokens read; the next one, if there is one, is the last target
  };
  void add_pieces(int64_t document, int64_t length);
  void pack(int64_t length);

  Corpus corpus_;
  std::vector<Piece> pieces_;  // row after row
  std::vector<int64_t> rows_;  // where each begins, then the end
  int64_t context_, shortened_ = 0;
};

}  // namespace braid::data
