#include "data/corpus.h"

#include "sys/check.h"

namespace braid::data {

void Corpus::add(std::span<const int32_t> ids, std::span<const uint8_t> trained) {
  CHECK(!file_ && (trained.empty() || trained.size() == ids.size()), "{} marks", trained.size());
  if (!trained.empty() && !marked()) trained_.assign(ids_.size(), 1);
  if (!trained.empty()) {
    trained_.insert(trained_.end(), trained.begin(), trained.end());
  } else if (marked()) {
    trained_.insert(trained_.end(), ids.size(), 1);
  }
  conversation_.push_back(!trained.empty());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  begins_.push_back(std::ssize(ids_));
}

Corpus::Tokens Corpus::read(int64_t document, int64_t first, int64_t count, std::vector<int32_t>& space) const {
  CHECK(first >= 0 && count >= 0 && first + count <= length(document), "{}+{} of {}", first, count, length(document));
  const int64_t from = begin(document) + first;
  const auto at = static_cast<size_t>(from), n = static_cast<size_t>(count);
  if (file_) {
    space.resize(n);
    file_->read(from, space);
    return {.ids = space, .trained = {}};
  }
  return {.ids = std::span(ids_).subspan(at, n),
          .trained = marked() ? std::span(trained_).subspan(at, n) : std::span<const uint8_t>()};
}

}  // namespace braid::data
