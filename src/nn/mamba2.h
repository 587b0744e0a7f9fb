// The Mamba-2 mixer (docs/internals/layers.md): in_proj -> causal convolution with SiLU -> scan -> gated grouped
// RMSNorm -> out_proj. The inner width is heads * head_dim; a config's `expand` is ignored.
#pragma once
#include <array>

#include "core/tape.h"
#include "kernels/ssd/ssd.h"
#include "nn/block.h"
#include "nn/param_source.h"
#include "nn/tensor_parallel.h"

namespace braid::nn {

struct Mamba2Spec {
  int64_t hidden = 0, heads = 0, head_dim = 0, state = 0, groups = 1, conv_width = 4, chunk = 128;
  bool conv_bias = true, proj_bias = false;
  float eps = 1e-5f;
  float dt_min = 0, dt_max = 0;  // time_step_limit; dt_max 0: no limit
  NormAcross norm{};             // where ranks have heads of one group

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
  // Heads [head, head + spec.heads) with their groups: all of them, or with context parallelism those of this rank,
  // whose sequences are whole.
  struct Heads {
    Mamba2Spec spec{};
    int64_t head = 0, group = 0;
    const SeqMap* seqs = nullptr;
  };
  // Channels [own, own + count) of the heads are channels [all, all + count) of the block.
  struct Channels {
    int64_t own = 0, all = 0, count = 0;
  };
  Heads all_heads(const Run& run) const { return {.spec = spec_, .seqs = &run.seqs}; }
  std::array<Channels, 3> channels_of(const Heads& heads) const;
  Tensor mix_heads(Run& run, const Tensor& inputs);
  // Of pieces whose states other ranks pass on (mamba2_states.cc).
  struct PieceGradient {
    View dy{}, raw{}, before{};  // [own, C], [own, C]; [S, W-1, C] F32, the inputs before each piece
    MutView dx{};                // [own, C]
  };
  Tensor convolve_pieces(Run& run, const Tensor& raw);
  void convolve_pieces_backward(Ctx& c, const ContextShares& shares, const PieceGradient& g);
  Tensor scan_pieces(Run& run, const Tensor& conv, const Tensor& dt);
  Tensor convolve(Run& run, const Heads& heads, const Tensor& raw);
  void convolve_backward(Ctx& c, const Heads& heads, const Channels& part, const View& dy, const View& x,
                         const MutView& dx);
  SsdFwd operands(const Heads& heads, const View& conv, const View& dt, const MutView& y) const;
  void set_state(SsdFwd& op, const BlockState& state) const;
  // conv [T, C] after convolution, dt [T, H] raw -> y [T, inner]
  Tensor scan(Run& run, const Heads& heads, const Tensor& conv, const Tensor& dt);
  // `state` and `dstate` [S, H, P, N] F32: before the sequences, if they do not start from zeros, and after them; in
  // and out, their gradient after and before.
  void scan_backward(Ctx& ctx, Tape& tape, const Heads& heads, const Ref& conv, const Ref& dt, const Ref& y,
                     const View& state = {}, const MutView& dstate = {});
  void scan_by_phase(Run& run, const View& conv, const View& dt, const MutView& y);
  void scan_exact(Run& run, const View& conv, const View& dt, const MutView& y);
  void scan_exact_sequence(Run& run, const Seq& s, const View& conv, const View& dt, const MutView& y);
  Mamba2Spec spec_;
  Mamba2Params params_;
};

Mamba2Params load_mamba2(const BlockSource& source, const Mamba2Spec& spec);

}  // namespace braid::nn
