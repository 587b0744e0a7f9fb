// Mixture of experts (docs/internals/layers.md, Router and Experts): a router in FP32, k of E experts per token, and a
// shared expert for every token. With a latent width the experts work in that narrower space, between two projections
// that all of them share; the shared expert and the router stay in the full width.
#pragma once
#include <memory>
#include <vector>

#include "kernels/experts/experts.h"
#include "kernels/router/router.h"
#include "nn/block.h"
#include "nn/mlp.h"
#include "nn/param_source.h"

namespace braid::nn {

struct MoeSpec {
  int64_t hidden = 0, experts = 0, top_k = 0, width = 0;
  int64_t latent = 0;        // 0: experts work in the full width
  int64_t shared_width = 0;  // 0: no shared expert
  bool gated = false;        // SwiGLU experts (Qwen3) instead of relu2
  RouterKind router = RouterKind::sigmoid;
  int64_t n_group = 1, topk_group = 1;
  bool normalise = true;
  float scale = 1;
  Range own{};  // of the experts: those that this rank has; none: all. Tokens travel (nn/expert_parallel.h), or without
                // Run::experts a block gives the part of its output that these experts make

  // Where ranks divide the channels between blocks (nn/hidden_parallel.h), `hidden` is this one's share. An expert
  // reads all, and if its width allows has a part of that on each rank instead.
  int64_t hidden_ranks = 1;
  bool over_hidden = false;

  int64_t expert_hidden() const { return latent > 0 ? latent : hidden * hidden_ranks; }
};

struct MoeParams {
  Param router, router_bias, latent_in, latent_out;
  std::vector<Param> up, gate, down;
  MlpParams shared;
};

class Moe final : public Block {
 public:
  Moe(const MoeSpec& spec, MoeParams params);
  Tensor forward(Run& run, const Tensor& x) override;
  void params(std::vector<Param*>& out) override;
  const MoeSpec& spec() const { return spec_; }

 private:
  View replayed(const Run& run, int64_t tokens) const;
  Tensor route(Run& run, const Tensor& x, Tensor& weights);
  void watch(Run& run, const Tensor& logits, const Tensor& experts, const Tensor& factors) const;
  Tensor mix(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out);
  Tensor mix_own(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out);
  Tensor mix_channels(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out);
  Tensor mix_on_ranks(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, DType out);
  MoeSpec spec_;
  MoeParams params_;
  // Operands of the op: the values and gradients of params_ as contiguous lists.
  std::vector<Weight> up_, gate_, down_;
  std::vector<MutView> up_grad_, gate_grad_, down_grad_;
  std::unique_ptr<Mlp> shared_;
};

MoeParams load_moe(const BlockSource& source, const MoeSpec& spec);

}  // namespace braid::nn
