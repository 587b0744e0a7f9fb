// Dropout: y = x / (1 - rate) where a random number says keep, 0 elsewhere; backward is the same map of dy. No mask is
// stored: whether a channel of a token is kept is a function of (seed, step, layer, op) and of (sample_id, position,
// channel) alone, so recomputation, packing, micro-batches, shards and threads change nothing.
//   key1 = philox(seed; step, layer),   key2 = philox(key1; op),   key3 = philox(key2; sample_id)     two words each
//   channel c at position p draws word c / 16 % 4 of philox(key3; 16 (c / 64) + c % 16, p) and is kept if that
//   is at least round(rate 2^32)
// The order of the channels lets vectors of 4, 8 and 16 lanes take whole words. Products in FP32.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

// Selects the random numbers. Forward, its recomputation and backward of one use share a key.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t layer = 0;
  uint32_t op = 0;  // which use within the layer
};

struct DropoutFwd {
  View x{};                      // [T, D] F32 or BF16
  MutView y{};                   // [T, D] F32 or BF16
  const SeqMap* seqs = nullptr;  // pos0 and sample_id identify the tokens; null: one sequence, sample 0
  float rate = 0;                // 0 <= rate < 1
  DropoutKey key{};
  static constexpr const char* name = "dropout_fwd";
  static constexpr auto fields() { return std::tuple{in("x", &DropoutFwd::x, "T D"), out("y", &DropoutFwd::y, "T D")}; }
  double flops() const { return 20.0 * static_cast<double>(x.count()); }
  static std::span<const Row<DropoutFwd>> rows();
};

struct DropoutBwd {
  View dy{};     // [T, D] F32 or BF16
  MutView dx{};  // [T, D] F32 or BF16
  const SeqMap* seqs = nullptr;
  float rate = 0;
  DropoutKey key{};
  static constexpr const char* name = "dropout_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &DropoutBwd::dy, "T D"), out("dx", &DropoutBwd::dx, "T D")};
  }
  double flops() const { return 20.0 * static_cast<double>(dy.count()); }
  static std::span<const Row<DropoutBwd>> rows();
};

}  // namespace braid
