#include "engine/prefix_cache.h"

#include <algorithm>

#include "engine/coded_snapshot.h"
#include "sys/check.h"

namespace braid::engine {
namespace {

// Says for a while whether spares alone may be evicted, also where an exception ends it.
class Evicting {
 public:
  Evicting(bool& spares_only, bool now) : spares_only_(spares_only) { spares_only_ = now; }
  Evicting(const Evicting&) = delete;
  Evicting& operator=(const Evicting&) = delete;
  ~Evicting() { spares_only_ = false; }

 private:
  bool& spares_only_;
};

int64_t bytes_of(std::span<const float> row) { return std::ssize(row) * size_of(DType::f32); }
int64_t bytes_of(std::span<const int32_t> tokens) { return std::ssize(tokens) * size_of(DType::i32); }
int64_t first_page(int64_t position) { return position / kPageTokens; }
int64_t pages_before(int64_t position) { return (position + kPageTokens - 1) / kPageTokens; }

}  // namespace

PrefixCache::PrefixCache(Runner& runner)
    : runner_(runner), pool_(runner.pool()), recurrent_(runner.pool().slot_bytes() > 0) {
  CHECK(runner.options().memory > 0, "a runner without a budget");
  if (recurrent_ && runner.options().snapshots == DType::i8) {
    CHECK(!runner.options().numerics.exact && runner.options().numerics.ssm == DType::f32,
          "snapshots that are not exact");
    coded_bytes_ = coded_snapshot_bytes(pool_.view());
  }
  nodes_.emplace_back();
  nodes_.front().self = nodes_.begin();
  pool_.set_reclaimer([this] { return evict(); });
}

PrefixCache::~PrefixCache() {
  while (evict()) {
  }
  pool_.set_reclaimer({});
}

PrefixCache::Place PrefixCache::locate(std::span<const int32_t> tokens) {
  Node* node = &nodes_.front();
  int64_t at = 0;
  while (at < std::ssize(tokens)) {
    const auto child = node->children.find(tokens[static_cast<size_t>(at)]);
    if (child == node->children.end()) break;
    node = child->second;
    const auto rest = tokens.subspan(static_cast<size_t>(at));
    const auto end = std::mismatch(node->tokens.begin(), node->tokens.end(), rest.begin(), rest.end()).first;
    at = node->begin + (end - node->tokens.begin());
    if (at < node->end()) break;
  }
  return {node, at};
}

// The pages of the first `tokens` tokens on the path to `node`, which holds the last of them. A page in which one edge
// ends and the next begins is that of the next: it was copied from the other or read with it, and holds more.
std::vector<int32_t> PrefixCache::pages_of(const Node* node, int64_t tokens) const {
  std::vector<int32_t> pages(static_cast<size_t>(pages_before(tokens)), -1);
  for (; node->parent; node = node->parent) {
    for (int64_t i = 0; i < std::ssize(node->pages); ++i) {
      const int64_t at = first_page(node->begin) + i;
      if (at < std::ssize(pages) && pages[static_cast<size_t>(at)] < 0)
        pages[static_cast<size_t>(at)] = node->pages[static_cast<size_t>(i)];
    }
  }
  return pages;
}

PrefixCache::Match PrefixCache::match(std::span<const int32_t> prompt) {
  const Place place = locate(prompt);
  const auto whole = [&](const Node* n) { return n->end() == std::ssize(prompt) && n->used > 0 && !n->row.empty(); };
  Node* from = place.node;
  if (!recurrent_) {
    const int64_t tokens = std::min(place.common, std::ssize(prompt) - (whole(from) ? 0 : 1));
    while (from->begin > 0 && from->begin >= tokens) from = from->parent;
    return {from, std::max<int64_t>(tokens, 0), place.common};
  }
  const auto usable = [&](const Node* n) {
    return n->used > 0 && n->end() <= place.common && (n->end() < std::ssize(prompt) || whole(n));
  };
  while (from->parent && !usable(from)) from = from->parent;
  return {from, from->end(), place.common};
}

PrefixCache::Found PrefixCache::resume(std::span<const int32_t> prompt, int64_t sequence) {
  runner_.reset(sequence);
  runner_.claim(sequence);  // before anything is found: it may evict
  const Match best = match(prompt);
  Found found{.tokens = best.tokens, .common = best.common};
  if (found.tokens == 0) return found;
  runner_.resume(sequence, found.tokens, pages_of(best.from, found.tokens), best.from->slot);
  if (coded_bytes_ > 0) decode_snapshot(runner_.ctx(), best.from->coded, pool_.view(), runner_.slot(sequence));
  if (found.tokens == std::ssize(prompt)) found.row = best.from->row;
  if (best.from->used > 0) use(best.from);
  return found;
}

void PrefixCache::keep(std::span<const int32_t> tokens, int64_t sequence, std::span<const float> row, Worth worth) {
  CHECK(runner_.length(sequence) == std::ssize(tokens), "{} tokens of a sequence of {}", tokens.size(),
        runner_.length(sequence));
  if (tokens.empty()) return;
  const Place known = locate(tokens);
  if (known.common == std::ssize(tokens) && known.node->end() == known.common && known.node->used > 0) {
    if (worth == Worth::wanted) use(known.node);
    if (known.node->row.empty() && pool_.bytes_in_use() + bytes_of(row) <= runner_.options().memory) {
      known.node->row.assign(row.begin(), row.end());
      pool_.refund(-bytes_of(row));
    }
    return;
  }
  std::vector<std::byte> coded(static_cast<size_t>(coded_bytes_));
  int64_t slot = -1;
  const int64_t edge = bytes_of(tokens) + 2 * kNodeBytes;  // at most
  bool edge_fits = false;
  {
    const Evicting evicting(spares_only_, worth == Worth::spare);
    edge_fits = pool_.charge(edge + bytes_of(row) + coded_bytes_);
    if (edge_fits && recurrent_ && coded_bytes_ == 0) {
      try {
        slot = runner_.copy_state(sequence);
      } catch (...) {
        pool_.refund(edge + bytes_of(row) + coded_bytes_);
        throw;
      }
    }
  }
  if (edge_fits) pool_.refund(edge);
  if (!edge_fits) return;
  if (recurrent_ && coded_bytes_ == 0 && slot < 0) return pool_.refund(bytes_of(row));
  if (coded_bytes_ > 0) encode_snapshot(runner_.ctx(), pool_.view(), runner_.slot(sequence), coded);
  // Nothing is evicted from here on.
  use(insert(tokens, pool_.pages(sequence), slot, std::move(coded), row), worth);
}

// A snapshot at the end of `tokens`, whose pages these are; what the tree has of them already stays.
PrefixCache::Node* PrefixCache::insert(std::span<const int32_t> tokens, std::span<const int32_t> pages, int64_t slot,
                                       std::vector<std::byte> coded, std::span<const float> row) {
  Node* node = node_at(locate(tokens));
  if (node->end() < std::ssize(tokens)) {
    const auto begin = static_cast<size_t>(node->end()), first = static_cast<size_t>(first_page(node->end())),
               last = static_cast<size_t>(pages_before(std::ssize(tokens)));
    node = add(node, tokens.subspan(begin), pages.subspan(first, last - first));
  }
  node->slot = slot;
  node->coded = std::move(coded);
  node->row.assign(row.begin(), row.end());
  return node;
}

// The node that ends at a place: an edge that goes on is split.
PrefixCache::Node* PrefixCache::node_at(const Place& place) {
  Node* lower = place.node;
  const int64_t at = place.common;
  if (at == lower->end()) return lower;
  Node* parent = lower->parent;
  const auto length = static_cast<size_t>(at - lower->begin);
  const auto shared = static_cast<size_t>(pages_before(at) - first_page(lower->begin));
  const auto dropped = static_cast<std::ptrdiff_t>(first_page(at) - first_page(lower->begin));
  Node* upper = add(parent, std::span(lower->tokens).first(length), std::span(lower->pages).first(shared));
  for (std::ptrdiff_t i = 0; i < dropped; ++i) pool_.release(lower->pages[static_cast<size_t>(i)]);
  references_ -= dropped;
  lower->pages.erase(lower->pages.begin(), lower->pages.begin() + dropped);
  lower->tokens.erase(lower->tokens.begin(), lower->tokens.begin() + static_cast<std::ptrdiff_t>(length));
  tokens_ -= static_cast<int64_t>(length);
  pool_.refund(static_cast<int64_t>(length) * size_of(DType::i32));
  lower->begin = at;
  lower->parent = upper;
  upper->children[lower->tokens[0]] = lower;
  return upper;
}

// In place of a child whose edge begins with the same token, if there is one.
PrefixCache::Node* PrefixCache::add(Node* parent, std::span<const int32_t> tokens, std::span<const int32_t> pages) {
  Node& node = nodes_.emplace_back();
  node.self = std::prev(nodes_.end());
  node.parent = parent;
  node.begin = parent->end();
  node.tokens.assign(tokens.begin(), tokens.end());
  node.pages.assign(pages.begin(), pages.end());
  for (const int32_t page : pages) pool_.retain(page);
  tokens_ += std::ssize(tokens);
  references_ += std::ssize(pages);
  pool_.refund(-(bytes_of(tokens) + kNodeBytes));
  parent->children[tokens[0]] = &node;
  return &node;
}

void PrefixCache::use(Node* node, Worth worth) {
  if (node->used > 0) by_use_.erase(node->used);
  node->used = ++clock_ | (worth == Worth::wanted ? kWanted : 0);
  by_use_[node->used] = node;
}

bool PrefixCache::evict() {
  if (by_use_.empty() || (spares_only_ && by_use_.begin()->first >= kWanted)) return false;
  Node* node = by_use_.begin()->second;
  forget(node);
  prune(node);
  return true;
}

void PrefixCache::forget(Node* node) {
  by_use_.erase(node->used);
  node->used = 0;
  if (node->slot >= 0) pool_.give_slot(std::exchange(node->slot, -1));
  pool_.refund(std::ssize(node->coded));
  node->coded = {};
  pool_.refund(bytes_of(node->row));
  node->row = {};
}

// Every node but the root has a snapshot or several children.
void PrefixCache::prune(Node* node) {
  while (node->parent && node->used == 0 && node->children.empty()) {
    Node* parent = node->parent;
    parent->children.erase(node->tokens[0]);
    remove(node);
    node = parent;
  }
  if (node->parent && node->used == 0 && node->children.size() == 1) merge_into_child(node);
}

void PrefixCache::remove(Node* node) {
  for (const int32_t page : node->pages) pool_.release(page);
  references_ -= std::ssize(node->pages);
  tokens_ -= std::ssize(node->tokens);
  pool_.refund(bytes_of(node->tokens) + kNodeBytes);
  nodes_.erase(node->self);
}

void PrefixCache::merge_into_child(Node* node) {
  Node* child = node->children.begin()->second;
  // The page in which the two edges meet is the child's.
  const auto before = static_cast<std::ptrdiff_t>(first_page(child->begin) - first_page(node->begin));
  child->pages.insert(child->pages.begin(), node->pages.begin(), node->pages.begin() + before);
  for (std::ptrdiff_t i = 0; i < before; ++i) pool_.retain(node->pages[static_cast<size_t>(i)]);
  references_ += before;
  child->tokens.insert(child->tokens.begin(), node->tokens.begin(), node->tokens.end());
  tokens_ += std::ssize(node->tokens);
  pool_.refund(-bytes_of(node->tokens));
  child->begin = node->begin;
  child->parent = node->parent;
  node->parent->children[child->tokens[0]] = child;
  remove(node);
}

void PrefixCache::check() const {
  int64_t references = 0, sum = 0, snapshots = 0;
  for (const Node& n : nodes_) {
    references += std::ssize(n.pages);
    sum += std::ssize(n.tokens);
    snapshots += n.used > 0;
    if (!n.parent) continue;
    const auto entry = n.parent->children.find(n.tokens.at(0));
    CHECK(entry != n.parent->children.end() && entry->second == &n, "a node at {} that its parent lacks", n.begin);
    CHECK(n.begin == n.parent->end(), "an edge from {} after {}", n.begin, n.parent->end());
    CHECK(n.used > 0 || n.children.size() > 1, "an edge to {} without use", n.end());
    CHECK(std::ssize(n.pages) == pages_before(n.end()) - first_page(n.begin), "{} pages of [{}, {})", n.pages.size(),
          n.begin, n.end());
    CHECK(n.used == 0 || by_use_.at(n.used) == &n, "a use of another");
    for (const int32_t page : n.pages) CHECK(pool_.readers(page) > 0, "page {} is free", page);
  }
  CHECK(references == references_ && sum == tokens_ && snapshots == std::ssize(by_use_), "{} {} {}", references, sum,
        snapshots);
}

}  // namespace braid::engine
