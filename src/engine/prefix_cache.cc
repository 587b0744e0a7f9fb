#include "engine/prefix_cache.h"

#include <algorithm>

namespace braid::engine {

PrefixCache::PrefixCache(Runner& runner, int64_t first, int64_t count) : runner_(runner) {
  for (int64_t i = 0; i < count; ++i) entries_.push_back({.sequence = first + i});
}

int64_t PrefixCache::resume(std::span<const int32_t> prompt, int64_t sequence) {
  Entry* best = nullptr;
  for (Entry& e : entries_) {
    const bool longer = e.tokens.size() > (best ? best->tokens.size() : 0);
    if (longer && e.tokens.size() < prompt.size() && std::equal(e.tokens.begin(), e.tokens.end(), prompt.begin()))
      best = &e;
  }
  if (!best) {
    runner_.reset(sequence);
    return 0;
  }
  best->used = ++clock_;
  runner_.fork(best->sequence, sequence);
  return std::ssize(best->tokens);
}

void PrefixCache::keep(std::span<const int32_t> tokens, int64_t sequence) {
  if (entries_.empty() || tokens.empty()) return;
  const auto same = [&](const Entry& e) { return std::ranges::equal(e.tokens, tokens); };
  auto entry = std::ranges::find_if(entries_, same);
  const bool known = entry != entries_.end();
  if (!known) entry = std::ranges::min_element(entries_, {}, &Entry::used);
  entry->used = ++clock_;
  if (known) return;
  entry->tokens.clear();  // until the state is the new one
  runner_.fork(sequence, entry->sequence);
  entry->tokens.assign(tokens.begin(), tokens.end());
}

int64_t PrefixCache::entries() const {
  return std::ranges::count_if(entries_, [](const Entry& e) { return !e.tokens.empty(); });
}

}  // namespace braid::engine
