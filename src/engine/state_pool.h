// The memory of sequences, in two parts that know nothing of each other. Recurrent states (convolution and SSM) lie in
// slots, which are allocated, copied and freed whole. Keys and values lie in pages, which a row of the page table
// lists for each sequence; a page counts its readers, so that sequences with a common beginning share it, and is copied
// when one of them is about to write it. Pages are reserved address space until they are touched, so a large context
// costs what is used of it.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/ctx.h"
#include "kernels/copy_state/copy_state.h"
#include "nn/state.h"

namespace braid::engine {

struct PoolOptions {
  int64_t sequences = 1;   // rows of the page table
  int64_t slots = 0;       // recurrent states; 0: one per sequence
  int64_t pages = 0;       // 0: enough for every sequence's whole context
  int64_t context = 4096;  // tokens of one sequence at most
  DType kv = DType::f32;   // or BF16; of the inputs that --exact keeps, too
  bool exact = false;      // also keep what --exact needs of unfinished chunks
};

// Bytes of one sequence of `context` tokens; the first term does not grow.
struct SequenceBytes {
  int64_t fixed = 0, per_token = 0;
};
SequenceBytes sequence_bytes(const std::vector<nn::StateShape>& shapes, DType kv, bool exact);

class StatePool {
 public:
  StatePool(const std::vector<nn::StateShape>& shapes, const PoolOptions& options);
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;
  ~StatePool();

  // A slot that nobody has, with whatever was left in it; -1 when there is none.
  int64_t take_slot();
  void give_slot(int64_t slot);
  void clear_slot(int64_t slot);
  void copy_slot(Ctx& ctx, int64_t from, int64_t to);
  int64_t slots_free() const { return std::ssize(free_slots_); }

  // Pages for positions [begin, end) of a sequence that nobody else reads, to be written; what lies before stays. Error
  // when that is more than the context, or no page is left: the sequence still has what it had.
  void prepare(Ctx& ctx, int64_t sequence, int64_t begin, int64_t end);
  // `to`, which has no pages, reads those of the first `tokens` of `from`.
  void share(int64_t from, int64_t to, int64_t tokens);
  // Gives back the pages past the first `tokens`.
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
  std::vector<int32_t> page_table_;  // [sequences, pages_max], -1 where there is none
  std::vector<int32_t> free_pages_;
  std::vector<int32_t> readers_;     // by page: entries of the page table that name it
  std::vector<int64_t> pages_held_;  // by sequence
  int64_t pages_max_ = 0;            // of one sequence
};

}  // namespace braid::engine
