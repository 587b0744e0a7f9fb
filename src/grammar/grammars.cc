#include "grammar/grammars.h"

#include <algorithm>

namespace braid::grammar {
namespace {

// Waits for one of the places of those that are compiled at a time.
template <class Places>
class Making {
 public:
  explicit Making(Places& places) : places_(places) { places_.acquire(); }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  ~Making() { places_.release(); }

 private:
  Places& places_;
};

}  // namespace

std::shared_ptr<const TokenTrie> Grammars::trie() {
  const std::lock_guard lock(trie_mutex_);
  if (!trie_) trie_ = make_trie_();
  return trie_;
}

std::shared_ptr<const Constraint> Grammars::find(const std::string& key) {
  const auto at = std::find_if(recent_.begin(), recent_.end(), [&](const Entry& e) { return e.key == key; });
  if (at == recent_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, at);
  return at->constraint;
}

std::shared_ptr<const Constraint> Grammars::get(const std::string& key, const std::string& where,
                                                const std::function<RuleId(Builder&)>& make) {
  {
    const std::lock_guard lock(mutex_);
    if (auto known = find(key)) return known;
  }
  // Each may take tens of MB meanwhile.
  const Making making(making_);
  {
    const std::lock_guard lock(mutex_);
    if (auto known = find(key)) return known;  // of an equal request before
  }
  Builder b(where);
  const RuleId start = make(b);
  auto made = std::make_shared<const Constraint>(b.finish(start), trie(), where);
  {
    const std::lock_guard lock(mutex_);
    if (auto known = find(key)) return known;  // of an equal request at the same time
    recent_.push_front({key, made});
  }
  trim();
  return made;
}

int64_t Grammars::trim() {
  const std::lock_guard lock(mutex_);
  const auto size_of = [](const Entry& e) { return e.constraint->bytes() + static_cast<int64_t>(e.key.capacity()); };
  int64_t bytes = 0;
  for (const Entry& e : recent_) bytes += size_of(e);
  for (auto at = recent_.end(); bytes > bytes_max_ && at != recent_.begin();) {
    --at;
    if (at->constraint.use_count() > 1) continue;  // its memory would stay, uncounted
    bytes -= size_of(*at);
    at = recent_.erase(at);
  }
  return bytes;
}

}  // namespace braid::grammar
