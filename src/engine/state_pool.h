// The memory of sequences, in two independent parts. Recurrent states (convolution and SSM) are stored in slots, which
// are allocated, copied and freed whole. Keys and values are stored in pages, listed for each sequence by a row of the
// page table; pages are reference-counted, so that sequences with a common prefix share them, and copied on write. A
// page is only reserved address space until it is touched, so a large context costs no more than what is used of it.
// Slots and pages together may have a budget in bytes; when it is used up, what only a cache holds is reclaimed.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/ctx.h"
#include "core/numerics.h"
#include "kernels/copy_state/copy_state.h"
#include "nn/state.h"
#include "sys/function_ref.h"

namespace braid::engine {

struct PoolOptions {
  int64_t sequences = 1;         // rows of the page table
  int64_t slots = 0;             // recurrent states; 0: one per sequence
  int64_t pages = 0;             // 0: enough for every sequence's whole context
  int64_t context = 4096;        // tokens of one sequence at most
  int64_t budget = 0;            // bytes that slots and pages in use may take together; 0: all of them
  CacheTypes types{};            // kv: also of the inputs that --exact stores
  bool context_may_grow = true;  // false: the model allows no more
  bool exact = false;            // also store what --exact needs of unfinished chunks
};

// Bytes of one sequence: its recurrent state, and keys and values for every token.
struct SequenceBytes {
  int64_t fixed = 0, per_token = 0;
};
constexpr int64_t kPageTokens = 64;  // small enough to waste little, large enough to stream

SequenceBytes sequence_bytes(const std::vector<nn::StateShape>& shapes, const CacheTypes& types, bool exact);

class StatePool {
 public:
  StatePool(const std::vector<nn::StateShape>& shapes, const PoolOptions& options);
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;
  ~StatePool();

  // Called when there is no room for a slot, a page or bytes: frees something, perhaps not enough, and returns true;
  // false when nothing can be freed.
  void set_reclaimer(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }
  // Counts other bytes that belong to sequences against the budget. False: there is no room for them.
  bool charge(int64_t bytes);
  void refund(int64_t bytes) { charged_ -= bytes; }
  int64_t bytes_in_use() const { return pages_in_use() * page_bytes_ + slots_in_use() * slot_bytes_ + charged_; }
  // Of slots and pages that have been touched, and of charged bytes; at most the budget.
  int64_t bytes_resident() const { return resident_ + charged_; }
  int64_t page_bytes() const { return page_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }

  // A free slot with undefined contents; -1 when there is none.
  int64_t take_slot();
  void give_slot(int64_t slot);
  void clear_slot(int64_t slot);
  void copy_slot(Ctx& ctx, int64_t from, int64_t to);
  int64_t slots_free() const { return std::ssize(free_slots_); }
  int64_t slots_in_use() const { return std::ssize(slots_touched_) - slots_free(); }

  // Error when a sequence of `tokens` tokens exceeds the context.
  void check_fits(int64_t tokens) const;
  // Unshared pages for positions [begin, end) of a sequence, to be written; earlier positions are unchanged. Error when
  // that exceeds the context, or no page is left; what the sequence has read is unchanged then.
  void prepare(Ctx& ctx, int64_t sequence, int64_t begin, int64_t end);
  // Whether `prepare` would neither copy a page nor lack one.
  bool owns(int64_t sequence, int64_t begin, int64_t end) const;
  // Pages up to position `end` of a sequence that has `begin`, copied from its first one, which must be full; includes
  // the whole page of `begin`.
  void repeat_page(Ctx& ctx, int64_t sequence, int64_t begin, int64_t end);
  // Gives block `to` the keys and values that block `from`, of the same shape, has of one token.
  void copy_token(int64_t sequence, int64_t position, int64_t from, int64_t to);
  // Lets `to`, which has no pages, share those of the first `tokens` of `from`.
  void share(int64_t from, int64_t to, int64_t tokens);
  // Frees the pages past the first `tokens`.
  void truncate(int64_t sequence, int64_t tokens);
  std::span<const int32_t> pages(int64_t sequence) const {
    return std::span(page_table_)
        .subspan(static_cast<size_t>(sequence * pages_max_),
                 static_cast<size_t>(pages_held_[static_cast<size_t>(sequence)]));
  }
  // Lets a sequence without pages share these, its first ones.
  void share(std::span<const int32_t> pages, int64_t to);
  // A page that is not of a sequence yet; -1 when there is none. `release` gives it back.
  int32_t take_page();
  // Readers of a page besides the sequences that name it.
  void retain(int32_t page);
  int64_t references() const { return references_; }  // readers of all pages
  void release(int32_t page);
  int64_t pages_free() const { return std::ssize(free_pages_); }
  int64_t pages_in_use() const { return std::ssize(readers_) - pages_free(); }
  int64_t readers(int32_t page) const { return readers_[static_cast<size_t>(page)]; }

  // The bytes of a page or a slot, one tensor of a block after another.
  void for_each_part_of_page(int32_t page, const sys::FunctionRef<void(std::span<std::byte>)>& body) const;
  void for_each_part_of_slot(int64_t slot, const sys::FunctionRef<void(std::span<std::byte>)>& body) const;

  nn::StateView& view() { return view_; }
  int64_t context() const { return options_.context; }

 private:
  MutView reserve(DType dtype, const Shape& shape);
  int32_t& entry(int64_t sequence, int64_t page) {
    return page_table_[static_cast<size_t>(sequence * pages_max_ + page)];
  }
  bool make_room(const sys::FunctionRef<bool()>& none_free, int64_t bytes);
  int32_t need_page();
  void copy_page(Ctx& ctx, int32_t from, int32_t to);
  void give_page(int32_t& page);
  void touch(std::vector<bool>& touched, int64_t entry, int64_t bytes);
  void give_back_memory();

  PoolOptions options_;
  nn::StateView view_;
  std::vector<std::pair<void*, size_t>> mappings_;
  std::vector<int64_t> free_slots_;
  std::vector<int32_t> page_table_;  // [sequences, pages_max], -1: none
  std::vector<int32_t> free_pages_;
  std::vector<int32_t> readers_;     // by page: entries of the page table that name it, and others (`retain`)
  int64_t references_ = 0;           // their sum
  std::vector<int64_t> pages_held_;  // by sequence
  int64_t pages_max_ = 0;            // of one sequence
  std::function<bool()> reclaim_;
  int64_t page_bytes_ = 0, slot_bytes_ = 0, charged_ = 0;
  // The memory of a freed slot or page is retained for the next one, until a budget needs it for the other kind.
  std::vector<bool> slots_touched_, pages_touched_;
  int64_t resident_ = 0;
};

}  // namespace braid::engine
