#include "engine/draft_ngram.h"

#include <algorithm>

namespace braid::engine {
namespace {

constexpr int kPositions = 16;  // compared at most

uint64_t pair_before(std::span<const int32_t> text, int64_t position) {
  const auto at = static_cast<size_t>(position);
  return uint64_t{static_cast<uint32_t>(text[at - 2])} << 32 | static_cast<uint32_t>(text[at - 1]);
}

int64_t equal_tokens(std::span<const int32_t> text, int64_t a, int64_t b) {
  int64_t n = 0;
  while (n < std::min(a, NgramIndex::kLongest) &&
         text[static_cast<size_t>(a - n - 1)] == text[static_cast<size_t>(b - n - 1)])
    ++n;
  return n;
}

}  // namespace

NgramIndex::Match NgramIndex::find(std::span<const int32_t> text) {
  const int64_t end = std::ssize(text);
  for (int64_t i = std::ssize(before_); i < end; ++i) {  // the end itself is no earlier occurrence
    before_.push_back(-1);
    if (i < 2) continue;
    const auto [entry, added] = last_.try_emplace(pair_before(text, i), i);
    if (added) continue;
    before_.back() = entry->second;
    entry->second = i;
  }
  Match best;
  if (end < 2) return best;
  const auto entry = last_.find(pair_before(text, end));
  int64_t at = entry == last_.end() ? -1 : entry->second;
  for (int i = 0; at >= 0 && i < kPositions && best.tokens < kLongest; ++i) {
    const int64_t tokens = equal_tokens(text, at, end);
    if (tokens > best.tokens) best = {tokens, at};  // of equal ones the latest
    at = before_[static_cast<size_t>(at)];
  }
  return best;
}

std::vector<int32_t> NgramIndex::continuation(std::span<const int32_t> text, const Match& match, int64_t tokens) {
  std::vector<int32_t> out;
  for (int64_t i = match.next; match.tokens > 0 && std::ssize(out) < tokens; ++i) {
    const int64_t beyond = i - std::ssize(text);
    out.push_back(beyond < 0 ? text[static_cast<size_t>(i)] : out[static_cast<size_t>(beyond)]);
  }
  return out;
}

}  // namespace braid::engine
