// Grouped-query attention over a paged cache (docs/internals/layers.md, Attention). Without RoPE it encodes no
// positions: in a hybrid the Mamba layers carry the order. Query width is heads * head_dim, in general not the model
// width.
#pragma once
#include <memory>
#include <vector>

#include "kernels/rope/rope.h"
#include "nn/block.h"
#include "nn/norm.h"
#include "nn/param_source.h"

namespace braid::nn {

struct RopeSpec {
  int64_t dim = 0;        // rotated channels of a head
  bool adjacent = false;  // pairs of neighbouring channels
  // Positions up to which the frequencies hold, 0 for any: those of `dynamic` change in longer sequences.
  int64_t positions_max = 0;
  RopeOptions options{};
};

struct AttentionSpec {
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool bias = false, out_bias = false;
  bool qk_bias = false;  // of queries and keys alone, in one tensor [2, 1, heads, head_dim]
  bool qk_norm = false;  // RMSNorm of every head's query and key (Qwen3)
  float eps = 1e-5f;     // of that norm
};

// cos and sin of all positions requested so far; shared by the blocks of a model.
class RopeTable {
 public:
  explicit RopeTable(const RopeSpec& spec) : spec_(spec) {}
  void ensure(int64_t positions);  // grows in powers of two
  View cos() const { return view_of(cos_.data(), {positions_, spec_.dim / 2}); }
  View sin() const { return view_of(sin_.data(), {positions_, spec_.dim / 2}); }
  bool adjacent() const { return spec_.adjacent; }

 private:
  RopeSpec spec_;
  int64_t positions_ = 0;
  std::vector<float> cos_, sin_;
};

struct AttentionParams {
  Param q, k, v, o;
  Param q_bias, k_bias, v_bias, o_bias;  // empty without bias
  Param q_norm, k_norm;
  float k_factor = 1, v_factor = 1;  // FP8 caches hold keys and values divided by these
};

class Attention final : public Block {
 public:
  Attention(const AttentionSpec& spec, AttentionParams params, std::shared_ptr<RopeTable> rope);
  Tensor forward(Run& run, const Tensor& x) override;
  void params(std::vector<Param*>& out) override;
  StateShape state_shape() const override {
    return {.kv_heads = spec_.kv_heads,
            .kv_dim = spec_.head_dim,
            .k_factor = params_.k_factor,
            .v_factor = params_.v_factor};
  }

 private:
  Tensor project(Run& run, const Tensor& x, Param& w, Param& bias, Param& norm, int64_t heads);
  Tensor rotate(Run& run, Tensor x);
  Tensor attend(Run& run, const SeqMap& seqs, const Tensor& q, const Tensor& k, const Tensor& v);
  Tensor attend_across(Run& run, const Tensor& q, const Tensor& k, const Tensor& v);
  AttentionSpec spec_;
  AttentionParams params_;
  std::shared_ptr<RopeTable> rope_;  // one table for all layers of a model
};

AttentionParams load_attention(const BlockSource& source, const AttentionSpec& spec);

}  // namespace braid::nn
