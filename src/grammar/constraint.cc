#include "grammar/constraint.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "sys/error.h"

namespace braid::grammar {
namespace {

// States visited for one mask: some hundredths of a second, which other answers wait. Only programs made to be slow
// reach it; of the tokens not looked at yet none is allowed then. Those of a single byte come first, and are looked at
// until one is allowed, so that there is always a next token.
constexpr int64_t kWorkMax = 200'000;
constexpr size_t kMaskBytesMax = size_t{16} << 20;

template <class T>
size_t size_of(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

size_t size_of(const Program& p, const Costs& c) {
  return size_of(p.states) + size_of(p.edges) + size_of(p.targets) + size_of(p.repetitions) + size_of(p.rules) +
         p.nullable.capacity() / 8 + size_of(c.tokens) + size_of(c.rule_tokens) + size_of(c.depth) +
         size_of(c.rule_depth);
}

}  // namespace

Constraint::Constraint(Program program, std::shared_ptr<const TokenTrie> trie, std::string_view where)
    : program_(std::move(program)), trie_(std::move(trie)), costs_(costs_of(program_, *trie_)) {
  const auto start = static_cast<size_t>(program_.start);
  if (costs_.rule_tokens[start] >= kNever || costs_.rule_depth[start] > kStackMax)
    fail(where, {.what = "no text satisfies the constraint",
                 .hint = "bounds, required properties and enum for a contradiction"});
  tables_ = std::make_shared<Tables>(program_, costs_);
  program_bytes_ = static_cast<int64_t>(sizeof(*this) + sizeof(Tables) + size_of(program_, costs_));
  count();
}

void Constraint::count() const {
  bytes_ = program_bytes_ + static_cast<int64_t>(tables_->automaton.bytes() + tables_->mask_bytes);
}

// Tokens after which the text can be completed with at most `tokens_max` more.
Constraint::Mask Constraint::walk(Automaton& automaton, ConfigId from, int64_t tokens_max) const {
  const std::vector<TokenTrie::Node>& nodes = trie_->nodes();
  Mask mask{.bits = std::vector<uint64_t>((static_cast<size_t>(trie_->size()) + 63) / 64)};
  const int64_t work_max = automaton.work() + kWorkMax;
  std::array<bool, 256> seen{};
  bool enough = false;
  for (size_t i = 0; i < nodes.size(); i = static_cast<size_t>(nodes[i].skip)) {
    if (nodes[i].count == 0) continue;
    if (enough && automaton.work() > work_max) break;
    const ConfigId next = automaton.step(from, nodes[i].byte);
    seen[nodes[i].byte] = true;
    enough = enough || (next != kDead && automaton.tokens_left(next) <= tokens_max);
  }
  std::vector<ConfigId> path(static_cast<size_t>(trie_->longest()) + 1, from);
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    if (automaton.work() > work_max && !(node.depth == 1 && seen[node.byte])) {
      i = static_cast<size_t>(node.skip);
      continue;
    }
    mask.bytes = std::max<int64_t>(mask.bytes, node.depth);
    const ConfigId next = automaton.step(path[node.depth - size_t{1}], node.byte);
    if (next == kDead) {
      i = static_cast<size_t>(node.skip);
      continue;
    }
    path[node.depth] = next;
    ++i;
    const int64_t left = automaton.tokens_left(next);
    if (node.count == 0 || left > tokens_max) continue;
    mask.any = true;
    mask.farthest = std::max(mask.farthest, left);
    for (const int32_t id : trie_->ids(node)) mask.bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  }
  return mask;
}

// Places that differ only in how far a distant bound is share one mask: `[a-z ]{1,500}` has one for most of its text.
// How far is far depends on the tokens that fit, of which few are long.
const Constraint::Mask& Constraint::mask_of(Tables& tables, ConfigId at) const {
  constexpr int64_t kMost = 24;  // bytes of nearly all tokens
  const Mask* mask = nullptr;
  for (const int64_t bytes : {std::min<int64_t>(kMost, trie_->longest()), int64_t{trie_->longest()}}) {
    const ConfigId alike = tables.automaton.adopt(tables.automaton, at, bytes);
    const auto [found, is_new] = tables.masks.try_emplace(alike);
    mask = &found->second;
    if (is_new) {
      found->second = walk(tables.automaton, alike, kNever);
      tables.mask_bytes += size_of(mask->bits) + sizeof(Mask) + 48;  // with its place in the map
    }
    if (mask->bytes <= bytes) break;
  }
  return *mask;
}

Matcher::Matcher(std::shared_ptr<const Constraint> constraint) : constraint_(std::move(constraint)) {
  const std::lock_guard lock(constraint_->mutex_);
  tables_ = constraint_->tables_;
  at_ = tables_->automaton.start();
  note();
}

void Matcher::note() {
  complete_ = tables_->automaton.accepts(at_);
  finished_ = complete_ && tables_->automaton.ends(at_);
}

// Goes on in the newest tables, and begins new ones where those are full.
void Matcher::renew() {
  const Constraint& c = *constraint_;
  const auto full = [](const Constraint::Tables& t) { return t.automaton.full() || t.mask_bytes > kMaskBytesMax; };
  if (full(*c.tables_)) c.tables_ = std::make_shared<Constraint::Tables>(c.program_, c.costs_);
  if (tables_ == c.tables_) return;
  at_ = c.tables_->automaton.adopt(tables_->automaton, at_);
  tables_ = c.tables_;
}

bool Matcher::accept(std::string_view bytes) {
  const std::lock_guard lock(constraint_->mutex_);
  ConfigId at = at_;
  for (const char byte : bytes) {
    at = tables_->automaton.step(at, static_cast<uint8_t>(byte));
    if (at == kDead) break;
  }
  constraint_->count();
  if (at == kDead) return false;
  at_ = at;
  note();
  return true;
}

void Matcher::mask(std::span<float> logits, int64_t tokens_left) {
  const std::lock_guard lock(constraint_->mutex_);
  renew();
  const TokenTrie& trie = *constraint_->trie_;
  const Constraint::Mask* mask = &constraint_->mask_of(*tables_, at_);
  // This token, those after it and an end token.
  Constraint::Mask closing;
  if (tokens_left >= 0 && mask->farthest + 2 > tokens_left) {
    closing = constraint_->walk(tables_->automaton, at_, tokens_left - 2);
    if (closing.any || complete_) mask = &closing;
  }
  constraint_->count();
  constexpr float kNo = -std::numeric_limits<float>::infinity();
  std::vector<float> ends;
  for (const int32_t id : trie.ends())
    ends.push_back(static_cast<size_t>(id) < logits.size() ? logits[static_cast<size_t>(id)] : kNo);
  for (size_t id = 0; id < logits.size(); ++id) {
    const bool known = id / 64 < mask->bits.size();
    if (!known || !(mask->bits[id / 64] >> (id % 64) & 1)) logits[id] = kNo;
  }
  if (!complete_ && mask->any) return;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (static_cast<size_t>(trie.ends()[i]) < logits.size()) logits[static_cast<size_t>(trie.ends()[i])] = ends[i];
  }
}

}  // namespace braid::grammar
