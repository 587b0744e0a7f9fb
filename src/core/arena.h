// The allocator of activations: first-fit blocks in a few large mappings, freed with the last Tensor that holds them.
// After the first pass over a shape every request is served from freed blocks: the steady state maps nothing. Passes
// that make the same requests in the same order, as the steps of a training run do, can follow an ArenaPlan instead.
// Only the thread that calls ops uses an arena, so its counts are plain integers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace braid {

struct ArenaPlan;

class Arena {
 public:
  struct Slot {
    Arena* arena = nullptr;
    std::byte* data = nullptr;
    int64_t bytes = 0;
    int64_t asked = 0;  // requested bytes, at most `bytes`
    int refs = 0;       // Tensors: while there is one, the bytes are retained
    int names = 0;      // Refs: while there is one, the slot is retained, and its bytes can be allocated again
    int value = -1;     // its index on a tape
    int block = -1;     // its index in the plan of a pass
    int pass = 0;
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  Slot* take(int64_t bytes);  // 64-byte aligned, contents undefined, refs = 1
  void retake(Slot* slot);    // bytes for a slot that has none; contents undefined
  void release(Slot* slot);   // called by the last Tensor
  void forget(Slot* slot);    // called by the last Ref

  // Between the two calls, requests are recorded in an empty plan, or placed by a finished one. A request that outgrows
  // its place or comes in another order is placed elsewhere, and the plan is renewed for the next pass; `plan` counts
  // it.
  void begin_pass(ArenaPlan& plan);
  void end_pass();

  int64_t bytes_in_use() const { return in_use_; }
  int64_t bytes_peak() const { return peak_; }
  int64_t bytes_mapped() const { return mapped_; }

 private:
  struct Block {
    std::byte* data;
    int64_t bytes;
    bool free;
    bool first;  // first block of a mapping: never merged with the one before it
  };
  std::byte* map(int64_t bytes);
  std::byte* first_fit(int64_t bytes);
  std::byte* place(Slot* slot);
  void free_block(std::byte* data);
  void stray();
  void recycle(Slot* slot);

  std::vector<Block> blocks_;  // by address within each mapping, mappings in order of creation
  std::vector<std::pair<std::byte*, int64_t>> mappings_;
  std::deque<Slot> slots_;
  std::vector<Slot*> free_slots_;
  int64_t in_use_ = 0, peak_ = 0, mapped_ = 0;

  enum class Mode : uint8_t { free, records, follows, strays };
  Mode mode_ = Mode::free;
  ArenaPlan* plan_ = nullptr;
  int pass_ = 0;
  size_t event_ = 0;  // next event of the plan
  bool outgrown_ = false;
  std::byte* plan_data_ = nullptr;
  int64_t plan_bytes_ = 0, plan_live_ = 0;
};

}  // namespace braid
