// Rotary position embedding, in place: pairs of channels of each head rotate by pos * f_i, the rest is kept.
//   a' = a cos - b sin,   b' = b cos + a sin,   f_i = theta^(-2i/R), scaled
// Pair i is channels i and i + R/2, as Hugging Face's weights expect, or with `adjacent` 2i and 2i + 1, as in the paper
// (arXiv 2104.09864); R < P is partial rotary.
// Products in FP32; the tables are computed in double. A rotation is orthogonal: backward applies its inverse; a factor
// in the tables is the same in both.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

struct RopeFwd {
  MutView x{};        // [T, H, P] F32 or BF16, in and out
  View cos{}, sin{};  // [positions, R/2] F32, R <= P
  const SeqMap* seqs = nullptr;
  bool adjacent = false;
  static constexpr const char* name = "rope_fwd";
  static constexpr auto fields() {
    return std::tuple{inout("x", &RopeFwd::x, "T H P"), in("cos", &RopeFwd::cos, "positions R/2"),
                      in("sin", &RopeFwd::sin, "positions R/2")};
  }
  double flops() const { return 6.0 * static_cast<double>(x.dim(0) * x.dim(1) * cos.dim(1)); }
  static std::span<const Row<RopeFwd>> rows();
};

struct RopeBwd {
  MutView dx{};       // [T, H, P] F32 or BF16: in, the gradient of the output; out, of the input
  View cos{}, sin{};  // [positions, R/2] F32, R <= P
  const SeqMap* seqs = nullptr;
  bool adjacent = false;
  static constexpr const char* name = "rope_bwd";
  static constexpr auto fields() {
    return std::tuple{inout("dx", &RopeBwd::dx, "T H P"), in("cos", &RopeBwd::cos, "positions R/2"),
                      in("sin", &RopeBwd::sin, "positions R/2")};
  }
  double flops() const { return 6.0 * static_cast<double>(dx.dim(0) * dx.dim(1) * cos.dim(1)); }
  static std::span<const Row<RopeBwd>> rows();
};

enum class RopeScaling : uint8_t { none, linear, llama3, yarn };  // rope_scaling.rope_type; none: default

struct RopeOptions {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;            // linear, llama3, yarn
  double low_freq_factor = 1;   // llama3: waves longer than original / low are slowed down by `factor`,
  double high_freq_factor = 4;  // shorter ones than original / high are kept, those between are blended
  double original_max_position_embeddings = 8192;  // llama3, yarn
  // YaRN (arXiv 2309.00071, section 3.2): pairs that turn more than beta_fast times in the original length are kept,
  // those that turn less than beta_slow times are slowed down by `factor`, those between are blended by their index.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;         // the indices where the blend begins and ends are whole numbers
  double attention_factor = 1;  // yarn: of cos and sin, so its square of all scores
};

// What YaRN's attention_factor is where a config does not say.
double yarn_attention_factor(double factor, double scale = 1);
// The scaled frequency of pair i of `pairs` = R/2, in radians per position.
double rope_frequency(const RopeOptions& options, int64_t i, int64_t pairs);
// Fills cos and sin [positions, R/2] F32 for positions 0, 1, ...
void rope_tables(const RopeOptions& options, const MutView& cos, const MutView& sin);

}  // namespace braid
