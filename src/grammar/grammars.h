// Compiled constraints of one model, by what they were made from: equal requests share one, and with it its masks.
// Those used last are kept for later requests, as far as their bytes allow.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>

#include "grammar/constraint.h"

namespace braid::grammar {

// What constraints that no answer needs any more may take. Those of running answers count, but are never evicted.
constexpr int64_t kGrammarBytesMax = int64_t{64} << 20;

class Grammars {
 public:
  using MakeTrie = std::function<std::shared_ptr<const TokenTrie>()>;
  // The trie is made when first needed.
  explicit Grammars(MakeTrie make_trie, int64_t bytes_max = kGrammarBytesMax)
      : make_trie_(std::move(make_trie)), bytes_max_(bytes_max) {}

  // The constraint of `key`, or one of the program that `make` builds, which is remembered. From any thread. `where`
  // begins errors.
  std::shared_ptr<const Constraint> get(const std::string& key, const std::string& where,
                                        const std::function<RuleId(Builder&)>& make);

  // Constraints grow while answers use them and become free when those end: evicts, the least recently used first, what
  // exceeds the limit and no answer holds. The bytes that remain. From any thread.
  int64_t trim();

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Constraint> constraint;
  };
  std::shared_ptr<const TokenTrie> trie();
  std::shared_ptr<const Constraint> find(const std::string& key);

  static constexpr std::ptrdiff_t kMakingMax = 2;
  std::counting_semaphore<kMakingMax> making_{kMakingMax};  // what is compiled at a time: hostile ones take memory
  std::mutex trie_mutex_;
  MakeTrie make_trie_;
  std::shared_ptr<const TokenTrie> trie_;
  int64_t bytes_max_;
  std::mutex mutex_;         // of what follows
  std::list<Entry> recent_;  // the last used first
};

}  // namespace braid::grammar
