// The dense feed-forward block: down(act(up x)), or down(act(gate x) * up x) when it is gated. And the plain linear map
// that some Llama-Nemotron layers have in place of attention or feed-forward.
#pragma once
#include "kernels/act/act.h"
#include "nn/block.h"
#include "nn/param_source.h"

namespace braid::nn {

struct MlpSpec {
  int64_t hidden = 0, width = 0;
  Act act = Act::relu2;
  bool gated = false, bias = false;
};

struct MlpParams {
  Param up, gate, down, up_bias, gate_bias, down_bias;
};

class Mlp final : public Block {
 public:
  Mlp(const MlpSpec& spec, MlpParams params) : spec_(spec), params_(std::move(params)) {}
  Tensor forward(Run& run, const Tensor& x) override;
  void params(std::vector<Param*>& out) override;

 private:
  MlpSpec spec_;
  MlpParams params_;
};

class LinearBlock final : public Block {
 public:
  explicit LinearBlock(Param weight) : weight_(std::move(weight)) {}
  Tensor forward(Run& run, const Tensor& x) override;
  void params(std::vector<Param*>& out) override { out.push_back(&weight_); }

 private:
  Param weight_;
};

MlpParams load_mlp(const BlockSource& source, const MlpSpec& spec);

}  // namespace braid::nn
