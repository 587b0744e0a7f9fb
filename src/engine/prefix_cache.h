// Prefixes that were read before, for prompts that begin with them: a chat sends its whole conversation again with
// every turn. A radix tree over token ids. An edge owns references to the pages that hold keys and values of its
// tokens, shared with sequences and copied on write. A recurrent state cannot be cut at another position, so the tree
// keeps it only at nodes, as a snapshot in a slot, or in INT8 (RunnerOptions::snapshots), and a prompt continues from
// the deepest snapshot on its path; models without a recurrent state continue anywhere. All of it counts against
// RunnerOptions::memory together with the running sequences, and is evicted when those need the room: the snapshot that
// was used least recently first, with the edge that leads to nothing else.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/prefix_file.h"
#include "engine/runner.h"

namespace braid::engine {

class PrefixCache {
 public:
  // The runner has a budget (RunnerOptions::memory), and no other cache.
  explicit PrefixCache(Runner& runner);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();

  struct Found {
    int64_t tokens = 0;        // that need not be read again
    int64_t common = 0;        // that the prompt shares with something in the tree: at least as many
    std::vector<float> row{};  // [D] of the residual stream at the last token, when all tokens are found
  };
  // How many tokens `resume` would find.
  int64_t longest(std::span<const int32_t> prompt) { return match(prompt).tokens; }
  // Resets `sequence` and lets it continue from the longest prefix of `prompt` that can be continued from. The whole
  // prompt is found only where the row of its last token was stored.
  Found resume(std::span<const int32_t> prompt, int64_t sequence);
  // Wanted: a place that later prompts are expected to continue from. Spare: one they might, which takes only room that
  // nothing wanted has, and is evicted first.
  enum class Worth : uint8_t { spare, wanted };
  // Stores the state of `sequence`, which has read `tokens`, and the row of the last one if it is given. Does nothing
  // when there is no room even after everything else has been evicted.
  void keep(std::span<const int32_t> tokens, int64_t sequence, std::span<const float> row = {},
            Worth worth = Worth::wanted);
  // Writes the tree to a file that `load` reads into an empty one, as much of it as there is room for, what was used
  // last first (prefix_file.h). Error when the file cannot be written; when it does not fit or is damaged, and the tree
  // stays empty. A file that does not exist is an empty tree.
  void save(const std::filesystem::path& path, uint64_t fingerprint) const;
  void load(const std::filesystem::path& path, uint64_t fingerprint);
  // Evicts what was used least recently. False: the tree is empty.
  bool evict();

  int64_t snapshots() const { return std::ssize(by_use_); }
  int64_t tokens() const { return tokens_; }               // on all edges
  int64_t page_references() const { return references_; }  // of edges, shared pages counted for each

  // Error if the tree's invariants do not hold; for tests.
  void check() const;

 private:
  static constexpr int64_t kNodeBytes = 256;              // a node with its places in the list and the maps, about
  static constexpr uint64_t kWanted = uint64_t{1} << 63;  // in Node::used: later than all spares
  struct Node {
    Node* parent = nullptr;
    std::list<Node>::iterator self{};
    int64_t begin = 0;                    // position of the first token of its edge
    std::vector<int32_t> tokens{};        // of the edge that leads to it; none at the root only
    std::vector<int32_t> pages{};         // those of positions [begin, end), the partial ones at both ends included
    std::map<int32_t, Node*> children{};  // by the first token of their edges
    uint64_t used = 0;                    // orders evictions; 0: no snapshot
    int64_t slot = -1;                    // of the snapshot; -1 where the model has no recurrent state, or it is coded
    std::vector<std::byte> coded{};       // the snapshot in INT8 (coded_snapshot.h), in place of a slot
    std::vector<float> row{};             // of the snapshot's last token; may be empty

    int64_t end() const { return begin + std::ssize(tokens); }
  };
  struct Place {
    Node* node;      // the deepest that holds a part of the tokens
    int64_t common;  // how many tokens that is
  };
  struct Match {
    Node* from;  // of the snapshot, or with the last token where no snapshot is needed
    int64_t tokens, common;
  };
  Place locate(std::span<const int32_t> tokens);
  Match match(std::span<const int32_t> prompt);
  int64_t snapshot_bytes() const { return coded_bytes_ > 0 ? coded_bytes_ : pool_.slot_bytes(); }
  PrefixFileKind kind(uint64_t fingerprint) const;
  Node* restore(const PrefixFile& file, size_t node, std::map<int32_t, int32_t>& pages);
  Node* insert(std::span<const int32_t> tokens, std::span<const int32_t> pages, int64_t slot,
               std::vector<std::byte> coded, std::span<const float> row);
  Node* node_at(const Place& place);
  Node* add(Node* parent, std::span<const int32_t> tokens, std::span<const int32_t> pages);
  void use(Node* node, Worth worth = Worth::wanted);
  void forget(Node* node);
  void prune(Node* node);
  void remove(Node* node);
  void merge_into_child(Node* node);
  std::vector<int32_t> pages_of(const Node* node, int64_t tokens) const;

  Runner& runner_;
  StatePool& pool_;
  bool recurrent_;
  int64_t coded_bytes_ = 0;  // of a snapshot in INT8; 0: snapshots are slots
  std::list<Node> nodes_;    // the root first
  std::map<uint64_t, Node*> by_use_;
  uint64_t clock_ = 0;
  bool spares_only_ = false;  // what may be evicted now
  int64_t tokens_ = 0, references_ = 0;
};

}  // namespace braid::engine
