// The memory of sequences, in two independent parts. Recurrent states (convolution and SSM) are stored in slots, which
// are allocated, copied and freed whole. Keys and values are stored in pages, listed for each sequence by a row of the
// page table; pages are reference-counted, so that sequences with a common prefix share them, and copied on write. A
// page is only reserved address space until it is touched, so a large context costs no more than what is used of it.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/ctx.h"
#include "core/numerics.h"
#include "kernels/copy_state/copy_state.h"
#include "nn/state.h"

namespace braid::engine {

struct PoolOptions {
  int64_t sequences = 1;         // rows of the page table
  int64_t slots = 0;             // recurrent states; 0: one per sequence
  int64_t pages = 0;             // 0: enough for every sequence's whole context
  int64_t context = 4096;        // tokens of one sequence at most
  CacheTypes types{};            // kv: also of the inputs that --exact stores
  bool context_may_grow = true;  // false: the model allows no more
  bool exact = false;            // also store what --exact needs of unfinished chunks
};

// Bytes of one sequence of `context` tokens; the first term does not grow.
struct SequenceBytes {
  int64_t fixed = 0, per_token = 0;
};
SequenceBytes sequence_bytes(const std::vector<nn::StateShape>& shapes, const CacheTypes& types, bool exact);

class StatePool {
 public:
  StatePool(const std::vector<nn::StateShape>& shapes, const PoolOptions& options);
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;
  ~StatePool();

  // A free slot with undefined contents; -1 when there is none.
  int64_t take_slot();
  void give_slot(int64_t slot);
  void clear_slot(int64_t slot);
  void copy_slot(Ctx& ctx, int64_t from, int64_t to);
  int64_t slots_free() const { return std::ssize(free_slots_); }

  // Error when a sequence of `tokens` tokens exceeds the context.
  void check_fits(int64_t tokens) const;
  // Unshared pages for positions [begin, end) of a sequence, to be written; earlier positions are unchanged. Error when
  // that exceeds the context, or no page is left; the sequence is unchanged then.
  void prepare(Ctx& ctx, int64_t sequence, int64_t begin, int64_t end);
  // Whether `prepare` would neither copy a page nor lack one.
  bool owns(int64_t sequence, int64_t begin, int64_t end) const;
  // Pages up to position `end` of a sequence that has `begin`, copied from its first one, which must be full; includes
  // the whole page of `begin`.
  void repeat_page(Ctx& ctx, int64_t sequence, int64_t begin, int64_t end);
  // Lets `to`, which has no pages, share those of the first `tokens` of `from`.
  void share(int64_t from, int64_t to, int64_t tokens);
  // Frees the pages past the first `tokens`.
  void truncate(int64_t sequence, int64_t tokens);
  int64_t pages_free() const { return std::ssize(free_pages_); }
  int64_t readers(int32_t page) const { return readers_[static_cast<size_t>(page)]; }

  nn::StateView& view() { return view_; }
  int64_t context() const { return options_.context; }

 private:
  MutView reserve(DType dtype, const Shape& shape);
  int32_t& entry(int64_t sequence, int64_t page) {
    return page_table_[static_cast<size_t>(sequence * pages_max_ + page)];
  }
  int32_t take_page();
  void give_page(int32_t& page);

  PoolOptions options_;
  nn::StateView view_;
  std::vector<std::pair<void*, size_t>> mappings_;
  std::vector<int64_t> free_slots_;
  std::vector<int32_t> page_table_;  // [sequences, pages_max], -1: none
  std::vector<int32_t> free_pages_;
  std::vector<int32_t> readers_;     // by page: entries of the page table that name it
  std::vector<int64_t> pages_held_;  // by sequence
  int64_t pages_max_ = 0;            // of one sequence
};

}  // namespace braid::engine
