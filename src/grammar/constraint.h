// What an answer may say: a Program over the tokens of one vocabulary, and how far an answer has come in it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/costs.h"
#include "grammar/program.h"
#include "grammar/token_trie.h"

namespace braid::grammar {

// Shared by all answers that it holds for, from any thread: what it learns about a position is computed once. The
// results do not depend on that.
class Constraint {
 public:
  // Error, beginning with `where`, when no text at all is allowed.
  Constraint(Program program, std::shared_ptr<const TokenTrie> trie, std::string_view where);
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  const TokenTrie& trie() const { return *trie_; }
  bool may_be_cut() const { return program_.may_be_cut; }
  // Memory that it holds, about: the program and the tables that new answers begin in. It grows with what answers say.
  int64_t bytes() const { return bytes_; }

 private:
  friend class Matcher;
  // The tokens allowed at a position, a bit each, and how many more the end needs after any of them, at most.
  struct Mask {
    std::vector<uint64_t> bits{};
    int64_t farthest = 0;
    int64_t bytes = 0;  // of the longest beginning of a token that was tried
    bool any = false;
  };
  // Tables that fill up are left to the answers that are in them, and new ones begun.
  struct Tables {
    Tables(const Program& program, const Costs& costs) : automaton(program, costs) {}
    Automaton automaton;
    std::unordered_map<ConfigId, Mask> masks{};
    size_t mask_bytes = 0;
  };
  Mask walk(Automaton& automaton, ConfigId from, int64_t tokens_max) const;
  const Mask& mask_of(Tables& tables, ConfigId at) const;
  void count() const;

  Program program_;
  std::shared_ptr<const TokenTrie> trie_;
  Costs costs_;
  mutable std::mutex mutex_;  // of the tables, the older ones included
  mutable std::shared_ptr<Tables> tables_;
  int64_t program_bytes_ = 0;
  mutable std::atomic<int64_t> bytes_ = 0;
};

// The position of one answer. A copy is independent.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Constraint> constraint);

  // More of the text; false, and nothing has changed, when it is not allowed.
  bool accept(std::string_view bytes);
  bool complete() const { return complete_; }  // the text may end here
  bool finished() const { return finished_; }  // and nothing may follow

  // Sets the logits of all tokens that may not come next to -infinity; end tokens may where the text is complete.
  // `tokens_left` tokens may be written (negative: any number): only those are allowed after which the rest is enough
  // to complete the text, if there are any.
  void mask(std::span<float> logits, int64_t tokens_left);

 private:
  void renew();
  void note();

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<Constraint::Tables> tables_;
  ConfigId at_ = 0;
  bool complete_ = false, finished_ = false;
};

}  // namespace braid::grammar
