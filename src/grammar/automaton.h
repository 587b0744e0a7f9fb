// Runs a Program over bytes. A position in a text is a configuration: the set of all (state, stack of calls) that the
// bytes so far may have led to. Stacks are shared lists of frames, interned like the configurations, so that both are
// small numbers and every transition is computed once. The tables only grow; full() says when to begin a new automaton.
//
// The work for a byte is bounded whatever the program: at most kItemsMax alternatives are followed at once and
// kStackMax calls nest. What exceeds that is dropped, which forbids some texts but never leads into a dead end, since
// each alternative that is left can be completed by itself. An alternative that another one covers, one that is as far
// but has begun fewer iterations of a bounded repetition, is not followed: `(\w+ ?){1,300}` has one place in a word,
// not one for each number of iterations that may have led there.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <unordered_map>
#include <vector>

#include "grammar/costs.h"
#include "grammar/program.h"

namespace braid::grammar {

using ConfigId = int32_t;
constexpr ConfigId kDead = -1;  // no text of the program begins like this

constexpr size_t kItemsMax = 1024;
constexpr int64_t kStackMax = 256;

class Automaton {
 public:
  // Both must outlive it.
  Automaton(const Program& program, const Costs& costs);

  ConfigId start() const { return start_; }
  ConfigId step(ConfigId from, uint8_t byte);
  bool accepts(ConfigId id) const { return configs_[static_cast<size_t>(id)].accepts; }        // the text may end here
  bool ends(ConfigId id) const { return configs_[static_cast<size_t>(id)].items.empty(); }     // nothing may follow
  int64_t tokens_left(ConfigId id) const { return configs_[static_cast<size_t>(id)].tokens; }  // enough for an end
  bool full() const { return bytes_ > kBytesMax; }
  size_t bytes() const { return bytes_; }  // of the tables, about
  // The configuration `id` of `other`, an automaton of the same program, which may be this one. Repetitions that may
  // end and whose bound is more than `bytes` away begin again at their lower bound: texts of `bytes` bytes, and all
  // that is left after those, are allowed as before or not as before.
  ConfigId adopt(const Automaton& other, ConfigId id, int64_t bytes = std::numeric_limits<int64_t>::max());
  int64_t work() const { return work_; }  // states visited so far

 private:
  static constexpr size_t kBytesMax = size_t{12} << 20;
  static constexpr int32_t kUnknown = -2;
  using StackId = int32_t;  // 0: empty

  // Where a call returns to. In a repetition `count` iterations have begun.
  struct Frame {
    StateId state = 0;
    int32_t count = 0;
    StackId below = 0;
    bool operator==(const Frame&) const = default;
  };
  struct Stack {
    Frame frame{};
    int64_t tokens = 0, depth = 0;  // to the end of the text from its top; frames
    uint64_t shape = 0;             // a hash of the states of its frames
  };
  struct Item {
    StateId state = 0;
    StackId stack = 0;
    bool operator==(const Item&) const = default;
  };
  struct Config {
    std::vector<Item> items{};  // their states read bytes; in the order of the program's alternatives
    bool accepts = false;
    int64_t tokens = kNever;
    std::unique_ptr<std::array<ConfigId, 256>> next{};
  };
  struct Hash {
    size_t operator()(const Frame& f) const;
  };
  // A place on the way to items: what is left to visit.
  struct Visit {
    StateId state = 0;
    int32_t count = 0;
    StackId stack = 0;
    bool operator==(const Visit&) const = default;
  };

  StackId push(const Frame& frame);
  int64_t tokens_from(StateId state, int32_t count) const;
  int64_t depth_from(StateId state, int32_t count) const;
  void expand(const Visit& v, std::vector<Visit>& todo);
  ConfigId close(std::vector<Visit> todo);
  bool covers(StackId stack, StackId other) const;
  void drop_covered(std::vector<Item>& items) const;
  ConfigId intern(Config config);

  const Program& program_;
  const Costs& costs_;
  std::vector<Stack> stacks_;
  std::unordered_map<Frame, StackId, Hash> stack_ids_;
  std::vector<Config> configs_;
  std::unordered_multimap<uint64_t, ConfigId> config_ids_;
  ConfigId start_ = 0;
  size_t bytes_ = 0;
  int64_t work_ = 0;
};

}  // namespace braid::grammar
