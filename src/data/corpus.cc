#include "data/corpus.h"

#include "data/content.h"
#include "sys/check.h"

namespace braid::data {

void Corpus::add(std::span<const int32_t> ids, std::span<const uint8_t> trained, bool continues) {
  CHECK(!file_ && (trained.empty() || trained.size() == ids.size()), "{} marks", trained.size());
  if (!trained.empty() && !marked()) trained_.assign(ids_.size(), 1);
  if (!trained.empty()) {
    trained_.insert(trained_.end(), trained.begin(), trained.end());
  } else if (marked()) {
    trained_.insert(trained_.end(), ids.size(), 1);
  }
  conversation_.push_back(!trained.empty());
  groups_.push_back(continues && !groups_.empty() ? groups_.back() : groups());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  begins_.push_back(std::ssize(ids_));
}

Corpus::Tokens Corpus::read(int64_t document, int64_t first, int64_t count, std::vector<int32_t>& space) const {
  CHECK(first >= 0 && count >= 0 && first + count <= length(document), "{}+{} of {}", first, count, length(document));
  const int64_t from = begin(document) + first;
  const auto at = static_cast<size_t>(from), n = static_cast<size_t>(count);
  return {.ids = ids(from, count, space),
          .trained = marked() ? std::span(trained_).subspan(at, n) : std::span<const uint8_t>()};
}

std::span<const int32_t> Corpus::ids(int64_t from, int64_t count, std::vector<int32_t>& space) const {
  if (!file_) return std::span(ids_).subspan(static_cast<size_t>(from), static_cast<size_t>(count));
  space.resize(static_cast<size_t>(count));
  file_->read(from, space);
  return space;
}

uint64_t Corpus::content(int threads) const {
  uint64_t hash = hash_in_parts(threads, begin(documents()), [&](int64_t from, int64_t count) {
    std::vector<int32_t> space;
    const uint64_t part = hash_of(ids(from, count, space));
    const auto at = static_cast<size_t>(from), n = static_cast<size_t>(count);
    return marked() ? mix(part, hash_of(std::span(trained_).subspan(at, n))) : part;
  });
  for (int64_t i = 0; i < documents(); ++i)
    hash = mix(hash, static_cast<uint64_t>(2 * begin(i) + (conversation(i) ? 1 : 0)));
  return hash;
}

}  // namespace braid::data
