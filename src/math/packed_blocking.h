// How a training product on packed operands (math/packed.h) is cut into tasks and blocks: sizes that change its time
// and no bit, since every sum is one chain along the depth wherever that is cut. Defaults are computed from a product's
// sizes (kernels/linear/linear_blocking.h); a profile (sys/profile.h), which `braid bench --tune --train-tokens`
// writes, names others for single products of one machine, BRAID_OP_<NAME>=... in one process:
//   packed_tile_weight_1024x3072x768_t2 = 256x768x512_ahead_1024
// is dW of [3072, 768] over 513 to 1024 tokens with two threads: tasks of 256 x 768 sums, 512 tokens at a time, the
// stream of packed values prefetched 1 KiB ahead.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "math/packed.h"

namespace braid::packed {

// Of one product y [rows, cols]. The grains are multiples of every kernel's tile and step.
struct Blocking {
  int64_t rows = 0, cols = 0;  // of y in a task
  int64_t depth = 0;           // whose panels are used before the next are packed
  int64_t ahead = 0;           // bytes of panels of b that are prefetched beyond what is used; 0: none
  bool operator==(const Blocking&) const = default;
};
inline constexpr int64_t kRowGrain = 32, kColGrain = 96, kDepthGrain = 32, kAheadGrain = 64;
inline constexpr int64_t kTaskRowsMax = 2048, kTaskColsMax = 3072, kBlockDepthMax = 4096, kAheadMax = 16384;

// The products of a linear layer: y = x w^T, dx = dy w, dw += dy^T x.
enum class Way : uint8_t { fwd, data, weight };

// What a choice is for. Tokens are rounded up to a power of two, from 32 to 2048.
struct ProductKey {
  Class c = Class::f32;
  Way way = Way::fwd;
  int threads = 1;
  int64_t tokens = 0, w_rows = 0, w_cols = 0;
  bool operator==(const ProductKey&) const = default;
};
ProductKey key_of(Class c, Way way, int threads, int64_t tokens, int64_t w_rows, int64_t w_cols);

// As in a profile.
std::string name_of(const ProductKey& key);
std::string text_of(const Blocking& blocking);
// Nothing for what is not the name of a product, or not sizes in the grains and ranges above.
std::optional<ProductKey> parse_key(std::string_view name);
std::optional<Blocking> parse_blocking(std::string_view text);

using Blockings = std::vector<std::pair<ProductKey, Blocking>>;
// Those of the choices that are for products, after `others`, which they replace. Error naming `where` and the choice.
Blockings blockings_of(const std::map<std::string, std::string>& choices, Blockings others = {},
                       const std::string& where = "BRAID_OP");
// Of this process: the profile, then BRAID_OP_<NAME>. The first call reads them.
const Blockings& blockings();
// Null without one. Never allocates.
const Blocking* chosen_blocking(const ProductKey& key);

}  // namespace braid::packed
