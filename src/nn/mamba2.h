// The Mamba-2 mixer (docs/internals/layers.md): in_proj -> causal convolution with SiLU -> scan -> gated grouped
// RMSNorm -> out_proj. The inner width is heads * head_dim; a config's `expand` is ignored.
#pragma once
#include "core/tape.h"
#include "kernels/ssd/ssd.h"
#include "nn/block.h"
#include "nn/param_source.h"

namespace braid::nn {

struct Mamba2Spec {
  int64_t hidden = 0, heads = 0, head_dim = 0, state = 0, groups = 1, conv_width = 4, chunk = 128;
  bool conv_bias = true, proj_bias = false;
  float eps = 1e-5f;
  float dt_min = 0, dt_max = 0;  // time_step_limit; dt_max 0: no limit

  int64_t inner() const { return heads * head_dim; }
  int64_t conv_channels() const { return inner() + 2 * groups * state; }  // x, B, C
  int64_t in_rows() const { return inner() + conv_channels() + heads; }   // z, x, B, C, dt
};

struct Mamba2Params {
  Param in_proj, conv, conv_bias, a_log, d_skip, dt_bias, norm, out_proj, in_bias, out_bias;
};

class Mamba2 final : public Block {
 public:
  Mamba2(const Mamba2Spec& spec, Mamba2Params params);
  Tensor forward(Run& run, const Tensor& x) override;
  void params(std::vector<Param*>& out) override;
  StateShape state_shape() const override;

 private:
  void record(Run& run, const Tensor& raw, const Tensor& dt);
  Tensor convolve(Run& run, const Tensor& raw);
  SsdFwd operands(const View& conv, const View& dt, const MutView& y) const;
  void set_state(SsdFwd& op, const BlockState& state) const;
  // conv [T, C] after convolution, dt [T, H] raw -> y [T, inner]
  Tensor scan(Run& run, const Tensor& conv, const Tensor& dt);
  void scan_backward(Ctx& ctx, Tape& tape, const Ref& conv, const Ref& dt, const Ref& y, const SeqMap& seqs);
  void scan_by_phase(Run& run, const View& conv, const View& dt, const MutView& y);
  void scan_exact(Run& run, const View& conv, const View& dt, const MutView& y);
  void scan_exact_sequence(Run& run, const Seq& s, const View& conv, const View& dt, const MutView& y);
  Mamba2Spec spec_;
  Mamba2Params params_;
};

Mamba2Params load_mamba2(const BlockSource& source, const Mamba2Spec& spec);

}  // namespace braid::nn
