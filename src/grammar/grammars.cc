#include "grammar/grammars.h"

#include <algorithm>

namespace braid::grammar {
namespace {

constexpr size_t kRecentMax = 16;  // each has tables of up to some 30 MB

}  // namespace

std::shared_ptr<const Constraint> Grammars::get(const std::string& key, const std::string& where,
                                                const std::function<RuleId(Builder&)>& make) {
  std::shared_ptr<const TokenTrie> trie;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(recent_.begin(), recent_.end(), [&](const auto& entry) { return entry.first == key; });
    if (at != recent_.end()) {
      recent_.splice(recent_.begin(), recent_, at);
      return at->second;
    }
    if (!trie_) trie_ = make_trie_();
    trie = trie_;
  }
  Builder b(where);
  const RuleId start = make(b);
  auto made = std::make_shared<const Constraint>(b.finish(start), trie, where);
  const std::lock_guard lock(mutex_);
  recent_.emplace_front(key, made);
  if (recent_.size() > kRecentMax) recent_.pop_back();
  return made;
}

}  // namespace braid::grammar
