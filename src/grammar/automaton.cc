#include "grammar/automaton.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace braid::grammar {
namespace {

constexpr size_t kVisitsMax = 4 * kItemsMax;

uint64_t mixed(uint64_t hash, int32_t value) {
  hash = (hash ^ static_cast<uint32_t>(value)) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

}  // namespace

size_t Automaton::Hash::operator()(const Frame& f) const { return mixed(mixed(mixed(1, f.state), f.count), f.below); }

Automaton::Automaton(const Program& program, const Costs& costs) : program_(program), costs_(costs), stacks_(1) {
  start_ = close({{program.rules[static_cast<size_t>(program.start)], 0, 0}});
}

int64_t Automaton::tokens_from(StateId state, int32_t count) const {
  const State& s = program_.states[static_cast<size_t>(state)];
  if (s.kind != State::Kind::repeat || count == 0) return costs_.tokens[static_cast<size_t>(state)];
  const Repetition& r = program_.repetitions[static_cast<size_t>(s.a)];
  const int64_t next = costs_.tokens[static_cast<size_t>(r.next)];
  if (count >= r.min) return next;
  const int64_t each = costs_.rule_tokens[static_cast<size_t>(r.body)];
  return std::min(kNever, next + std::min<int64_t>(r.min - count, kNever / (each + 1)) * each);
}

int64_t Automaton::depth_from(StateId state, int32_t count) const {
  const State& s = program_.states[static_cast<size_t>(state)];
  if (s.kind == State::Kind::repeat) {
    const Repetition& r = program_.repetitions[static_cast<size_t>(s.a)];
    if (count >= r.min) return costs_.depth[static_cast<size_t>(r.next)];
  }
  return costs_.depth[static_cast<size_t>(state)];
}

Automaton::StackId Automaton::push(const Frame& frame) {
  const auto [at, is_new] = stack_ids_.try_emplace(frame, static_cast<StackId>(stacks_.size()));
  if (is_new) {
    const Stack& below = stacks_[static_cast<size_t>(frame.below)];
    stacks_.push_back({.frame = frame,
                       .tokens = std::min(kNever, below.tokens + tokens_from(frame.state, frame.count)),
                       .depth = below.depth + 1,
                       .shape = mixed(below.shape, frame.state)});
    bytes_ += sizeof(Stack) + sizeof(Frame) + 32;
  }
  return at->second;
}

// What comes before the next byte: the states after `v`, the first alternative last.
void Automaton::expand(const Visit& v, std::vector<Visit>& todo) {
  const State& s = program_.states[static_cast<size_t>(v.state)];
  const auto start_of = [&](RuleId rule) { return program_.rules[static_cast<size_t>(rule)]; };
  switch (s.kind) {
    case State::Kind::split:
      for (int32_t i = s.b; i-- > 0;) todo.push_back({program_.targets[static_cast<size_t>(s.a + i)], 0, v.stack});
      break;
    case State::Kind::call:
      todo.push_back({start_of(s.a), 0, push({s.b, 0, v.stack})});
      break;
    case State::Kind::repeat: {
      const Repetition& r = program_.repetitions[static_cast<size_t>(s.a)];
      if (v.count >= r.min) todo.push_back({r.next, 0, v.stack});
      if (r.max != kUnbounded && v.count >= r.max) break;
      // Without an upper bound, iterations beyond the lower one are alike.
      const int32_t count = r.max == kUnbounded ? std::min(v.count + 1, r.min) : v.count + 1;
      todo.push_back({start_of(r.body), 0, push({v.state, count, v.stack})});
      break;
    }
    case State::Kind::done: {
      const Frame top = stacks_[static_cast<size_t>(v.stack)].frame;
      todo.push_back({top.state, top.count, top.below});
      break;
    }
    case State::Kind::bytes:
      break;
  }
}

// All that can read the next byte from there. A repetition whose body may be empty is entered once: its later counts
// allow less than its first.
ConfigId Automaton::close(std::vector<Visit> todo) {
  struct Key {
    size_t operator()(const Visit& v) const { return mixed(mixed(mixed(2, v.state), v.count), v.stack); }
  };
  std::unordered_set<Visit, Key> visited;
  Config config;
  std::reverse(todo.begin(), todo.end());  // the last is visited first
  while (!todo.empty() && config.items.size() < kItemsMax && visited.size() < kVisitsMax) {
    Visit v = todo.back();
    todo.pop_back();
    const State& s = program_.states[static_cast<size_t>(v.state)];
    const Stack& stack = stacks_[static_cast<size_t>(v.stack)];
    const int64_t tokens = tokens_from(v.state, v.count) + stack.tokens;
    if (tokens >= kNever || stack.depth + depth_from(v.state, v.count) > kStackMax) continue;
    Visit key = v;
    if (s.kind == State::Kind::repeat) {
      const Repetition& r = program_.repetitions[static_cast<size_t>(s.a)];
      if (program_.nullable[static_cast<size_t>(r.body)]) key.count = 0;
    }
    ++work_;
    if (!visited.insert(key).second) continue;
    config.tokens = std::min(config.tokens, tokens);
    if (s.kind == State::Kind::bytes)
      config.items.push_back({v.state, v.stack});
    else if (s.kind == State::Kind::done && v.stack == 0)
      config.accepts = true;
    else
      expand(v, todo);
  }
  drop_covered(config.items);
  return config.items.empty() && !config.accepts ? kDead : intern(std::move(config));
}

// Whether what may follow `other` may follow `stack` too: they differ only in repetitions that may end in either, and
// of which this one has more iterations left.
bool Automaton::covers(StackId stack, StackId other) const {
  while (stack != other) {
    if (stack == 0 || other == 0) return false;
    const Frame &a = stacks_[static_cast<size_t>(stack)].frame, &b = stacks_[static_cast<size_t>(other)].frame;
    if (a.state != b.state || a.count > b.count) return false;
    const State& s = program_.states[static_cast<size_t>(a.state)];
    if (a.count < b.count && a.count < program_.repetitions[static_cast<size_t>(s.a)].min) return false;
    stack = a.below;
    other = b.below;
  }
  return true;
}

// The order of those that stay does not change. Each is compared with the last few of its state and shape only.
void Automaton::drop_covered(std::vector<Item>& items) const {
  constexpr size_t kCompared = 8;
  if (items.size() < 2) return;
  std::unordered_map<uint64_t, std::vector<size_t>> alike;
  std::vector<bool> covered(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    std::vector<size_t>& others = alike[mixed(stacks_[static_cast<size_t>(item.stack)].shape, item.state)];
    for (size_t n = others.size(); n > 0 && n + kCompared > others.size() && !covered[i]; --n) {
      const Item& other = items[others[n - 1]];
      if (other.state != item.state || covered[others[n - 1]]) continue;
      covered[i] = covers(other.stack, item.stack);
      covered[others[n - 1]] = !covered[i] && covers(item.stack, other.stack);
    }
    if (!covered[i]) others.push_back(i);
  }
  size_t kept = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!covered[i]) items[kept++] = items[i];
  }
  items.resize(kept);
}

ConfigId Automaton::intern(Config config) {
  uint64_t hash = config.accepts;
  for (const Item& item : config.items) hash = mixed(mixed(hash, item.state), item.stack);
  const auto [first, last] = config_ids_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const Config& known = configs_[static_cast<size_t>(at->second)];
    if (known.items == config.items && known.accepts == config.accepts) return at->second;
  }
  const auto id = static_cast<ConfigId>(configs_.size());
  config_ids_.emplace(hash, id);
  bytes_ += sizeof(Config) + config.items.size() * sizeof(Item) + 48;
  configs_.push_back(std::move(config));
  return id;
}

ConfigId Automaton::step(ConfigId from, uint8_t byte) {
  Config& config = configs_[static_cast<size_t>(from)];
  if (!config.next) {
    config.next = std::make_unique<std::array<ConfigId, 256>>();
    config.next->fill(kUnknown);
    bytes_ += sizeof(*config.next);
  }
  if ((*config.next)[byte] != kUnknown) return (*config.next)[byte];
  std::vector<Visit> todo;
  for (const Item& item : config.items) {
    const State& s = program_.states[static_cast<size_t>(item.state)];
    for (int32_t i = s.a; i < s.a + s.b; ++i) {
      const ByteEdge& edge = program_.edges[static_cast<size_t>(i)];
      if (edge.first <= byte && byte <= edge.last) todo.push_back({edge.next, 0, item.stack});
    }
  }
  work_ += std::ssize(config.items);
  const ConfigId next = todo.empty() ? kDead : close(std::move(todo));
  return (*configs_[static_cast<size_t>(from)].next)[byte] = next;  // `config` may have moved
}

ConfigId Automaton::adopt(const Automaton& other, ConfigId id, int64_t bytes) {
  std::unordered_map<StackId, StackId> known{{0, 0}};
  const auto begun_again = [&](Frame frame) {
    const State& s = program_.states[static_cast<size_t>(frame.state)];
    if (s.kind != State::Kind::repeat) return frame;
    const Repetition& r = program_.repetitions[static_cast<size_t>(s.a)];
    const int32_t least = std::max(r.min, 1);
    if (r.max != kUnbounded && frame.count > least && r.max - frame.count > bytes) frame.count = least;
    return frame;
  };
  const auto stack_of = [&](StackId theirs) {
    std::vector<StackId> path;
    for (StackId at = theirs; !known.contains(at); at = other.stacks_[static_cast<size_t>(at)].frame.below)
      path.push_back(at);
    for (; !path.empty(); path.pop_back()) {
      Frame frame = begun_again(other.stacks_[static_cast<size_t>(path.back())].frame);
      frame.below = known.at(frame.below);
      known[path.back()] = push(frame);
    }
    return known.at(theirs);
  };
  Config config;
  config.accepts = other.configs_[static_cast<size_t>(id)].accepts;
  config.tokens = other.configs_[static_cast<size_t>(id)].tokens;
  for (size_t i = 0; i < other.configs_[static_cast<size_t>(id)].items.size(); ++i) {
    const Item item = other.configs_[static_cast<size_t>(id)].items[i];
    config.items.push_back({item.state, stack_of(item.stack)});
  }
  return intern(std::move(config));
}

}  // namespace braid::grammar
