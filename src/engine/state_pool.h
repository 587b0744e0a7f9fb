// The memory of sequences: conv and SSM state in slots, keys and values in pages handed out as a sequence grows. Pages
// are reserved address space until they are touched, so a large context costs what is used of it.
#pragma once
#include <cstdint>
#include <vector>

#include "nn/state.h"

namespace braid::engine {

struct PoolOptions {
  int64_t slots = 1;
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

  // Makes room for positions [0, tokens) of the slot. Error when that is more than the context.
  void grow(int64_t slot, int64_t tokens);
  // Forgets the slot: state to zero, pages given back.
  void reset(int64_t slot);

  nn::StateView& view() { return view_; }
  int64_t context() const { return options_.context; }

 private:
  MutView reserve(DType dtype, const Shape& shape);

  PoolOptions options_;
  nn::StateView view_;
  std::vector<std::pair<void*, size_t>> mappings_;
  std::vector<int32_t> page_table_;  // [slots, pages_max], -1 where there is none
  std::vector<int32_t> free_pages_;
  std::vector<int64_t> pages_held_;  // by slot
  int64_t pages_max_ = 0;            // of one sequence
};

}  // namespace braid::engine
