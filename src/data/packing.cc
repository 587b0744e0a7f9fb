#include "data/packing.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "data/shuffle.h"

namespace braid::data {
namespace {

constexpr uint64_t kSplitKey = 0x5911;  // the split depends on the corpus, not on the run's seed

// One piece of a document as a sequence: with the context that the goldfish hash needs, and the token after it.
void add_piece(const Corpus& corpus, int64_t document, int64_t first, int64_t count, int64_t context, RowWriter& out) {
  const int64_t from = std::max<int64_t>(0, first - context);
  const int64_t end = std::min(first + count + 1, corpus.length(document));
  const Corpus::Tokens tokens = corpus.read(document, from, end - from, out.scratch().ids);
  out.add(tokens.ids, first - from, count, tokens.trained);
}

int64_t context_of(const RowRules& rules) { return rules.goldfish.k > 0 ? rules.goldfish.window : 0; }

}  // namespace

std::vector<int64_t> chosen_of(std::span<const int64_t> group_of, int64_t groups, double validation, bool held_out) {
  std::vector<int64_t> chosen;
  int64_t kept = groups - static_cast<int64_t>(std::llround(validation * static_cast<double>(groups)));
  if (validation > 0 && groups > 1) kept = std::clamp<int64_t>(kept, 1, groups - 1);
  for (int64_t i = 0; i < std::ssize(group_of); ++i) {
    const bool out = validation > 0 && shuffled(group_of[static_cast<size_t>(i)], groups, kSplitKey) >= kept;
    if (out == held_out) chosen.push_back(i);
  }
  return chosen;
}

std::vector<int64_t> chosen_documents(const Corpus& corpus, double validation, bool held_out) {
  std::vector<int64_t> group_of;
  for (int64_t document = 0; document < corpus.documents(); ++document) group_of.push_back(corpus.group(document));
  std::vector<int64_t> chosen = chosen_of(group_of, corpus.groups(), validation, held_out);
  std::erase_if(chosen, [&](int64_t document) { return corpus.length(document) == 0; });
  return chosen;
}

StreamSource::StreamSource(Corpus corpus, std::vector<int64_t> documents, const RowRules& rules)
    : corpus_(std::move(corpus)),
      documents_(std::move(documents)),
      ends_{0},
      length_(rules.length),
      context_(context_of(rules)) {
  for (const int64_t document : documents_) ends_.push_back(ends_.back() + corpus_.length(document));
}

void StreamSource::row(int64_t index, RowWriter& out) const {
  int64_t at = index * length_;
  const int64_t end = std::min(at + length_, ends_.back());
  auto which = std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin() - 1;
  for (; at < end; ++which) {
    const auto w = static_cast<size_t>(which);
    const int64_t stop = std::min(end, ends_[w + 1]);
    add_piece(corpus_, documents_[w], at - ends_[w], stop - at, context_, out);
    at = stop;
  }
}

PackedSource::PackedSource(Corpus corpus, const std::vector<int64_t>& documents, const RowRules& rules)
    : corpus_(std::move(corpus)), context_(context_of(rules)) {
  for (const int64_t document : documents) add_pieces(document, rules.length);
  pack(rules.length);
}

// A document's last token is only a target.
void PackedSource::add_pieces(int64_t document, int64_t length) {
  const int64_t inputs = corpus_.length(document) - 1;
  if (!corpus_.conversation(document)) {
    for (int64_t first = 0; first < inputs; first += length) {
      pieces_.push_back({document, first, std::min(length, inputs - first)});
    }
    return;
  }
  int64_t count = std::min(length, inputs);
  shortened_ += count < inputs ? 1 : 0;
  std::vector<int32_t> none;  // masks are in memory
  const std::span<const uint8_t> trained = corpus_.read(document, 0, count + 1, none).trained;
  while (count > 0 && trained[static_cast<size_t>(count)] == 0) --count;  // nothing is learnt after the last target
  if (count > 0) pieces_.push_back({document, 0, count});
}

void PackedSource::pack(int64_t length) {
  std::ranges::stable_sort(pieces_, std::greater{}, &Piece::count);
  std::vector<std::vector<Piece>> shelves;
  std::set<std::pair<int64_t, size_t>> room;  // of each shelf
  for (const Piece& piece : pieces_) {
    auto best = room.lower_bound({piece.count, 0});
    size_t shelf = shelves.size();
    int64_t left = length;
    if (best != room.end()) {
      left = best->first;
      shelf = best->second;
      room.erase(best);
    } else {
      shelves.emplace_back();
    }
    shelves[shelf].push_back(piece);
    if (left > piece.count) room.insert({left - piece.count, shelf});
  }
  pieces_.clear();
  rows_ = {0};
  for (const std::vector<Piece>& shelf : shelves) {
    pieces_.insert(pieces_.end(), shelf.begin(), shelf.end());
    rows_.push_back(std::ssize(pieces_));
  }
}

void PackedSource::row(int64_t index, RowWriter& out) const {
  for (int64_t p = rows_[static_cast<size_t>(index)]; p < rows_[static_cast<size_t>(index) + 1]; ++p) {
    const Piece& piece = pieces_[static_cast<size_t>(p)];
    add_piece(corpus_, piece.document, piece.first, piece.count, context_, out);
  }
}

}  // namespace braid::data
