// Compiled constraints of one model, by what they were made from: equal requests share one, and with it its masks.
#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "grammar/constraint.h"

namespace braid::grammar {

class Grammars {
 public:
  using MakeTrie = std::function<std::shared_ptr<const TokenTrie>()>;
  // The trie is made when first needed.
  explicit Grammars(MakeTrie make_trie) : make_trie_(std::move(make_trie)) {}

  // The constraint of `key`, or one of the program that `make` builds, which is remembered. From any thread. `where`
  // begins errors.
  std::shared_ptr<const Constraint> get(const std::string& key, const std::string& where,
                                        const std::function<RuleId(Builder&)>& make);

 private:
  std::mutex mutex_;
  MakeTrie make_trie_;
  std::shared_ptr<const TokenTrie> trie_;
  std::list<std::pair<std::string, std::shared_ptr<const Constraint>>> recent_;  // the last used first
};

}  // namespace braid::grammar
