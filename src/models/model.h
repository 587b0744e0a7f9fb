// A model in memory: embedding, a stack of layers, final norm, head, and the multi-token prediction block if the files
// have one. The same object trains, prefills and decodes.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/weight_store.h"
#include "models/config.h"
#include "nn/block.h"
#include "nn/norm.h"
#include "nn/ops.h"
#include "nn/run.h"

namespace braid::models {

class Model {
 public:
  struct Part {
    nn::Norm norm;
    std::unique_ptr<nn::Block> block;
    std::optional<nn::Norm> after{};
    bool cut = false;      // has a part of the block: outputs of all ranks add up
    bool experts = false;  // of a block of experts, which other ranks may share (nn::Run::stage)
  };
  using Layer = std::vector<Part>;

  // Requests every parameter of `config` from `source`.
  Model(Config config, nn::ParamSource& source);

  // ids [T] I32 -> residual stream after the last layer, [T, D] F32, before the final norm.
  Tensor forward(nn::Run& run, const Tensor& ids);
  // Layers [begin, begin + count) of it: of the first, x is empty, and ids are looked up.
  Tensor forward(nn::Run& run, const Tensor& ids, const Tensor& x, const Range& layers);
  // What that consists of in a model with a loop, for those who decide from the states how many steps there are: ids ->
  // e; e and s_{i-1} -> s_i, for step i - 1; s_r -> the residual stream. All [T, D] F32.
  Tensor loop_input(nn::Run& run, const Tensor& ids);
  Tensor loop_step(nn::Run& run, const Tensor& input, const Tensor& state, int64_t step);
  Tensor loop_output(nn::Run& run, const Tensor& state);
  // Steps [nn::Loop::first, end) of those.
  Tensor loop_state(nn::Run& run, const Tensor& ids, int64_t end);
  // x [n, D] from forward -> logits [n, V] F32.
  Tensor logits(nn::Run& run, const Tensor& x);
  // x [n, D] from forward, targets [n] I32 -> the losses of the targets, [n] F32: minus their log-probabilities.
  Tensor token_losses(nn::Run& run, const Tensor& x, const Tensor& targets);
  // x [T, D] from forward -> [T, D] F32 after the final norm: what the prediction block reads.
  Tensor final_hidden(nn::Run& run, const Tensor& x);
  // One step of multi-token prediction: ids [T] are the tokens after those of `hidden` [T, D] -> [T, D] in the type of
  // the products, which the head reads, and the next step in place of `hidden`.
  Tensor mtp_step(nn::Run& run, const Tensor& ids, const Tensor& hidden);
  // Of what mtp_step returned, [n, D] -> logits [n, V] F32.
  Tensor mtp_logits(nn::Run& run, const Tensor& hidden);

  // The cross-entropy of every token, [T] F32, with a gradient that is known only in the backward pass: for losses over
  // pairs and rewards.
  Tensor losses_of(nn::Run& run, const Tensor& ids, const Tensor& targets);

  // What the head reads of every token, [T, D] in the type of the products; with `head` what a student follows.
  Tensor head_input(nn::Run& run, const Tensor& ids);
  const Weight& head() const { return head_.value; }
  // The divergence of every token from a teacher's, and its cross-entropy, [T] F32 (nn/ops.h).
  nn::DistillLosses distill(nn::Run& run, const Tensor& ids, const Tensor& targets, const Tensor& token_weight,
                            const nn::Teacher& teacher);

  // With context parallelism (nn/context_parallel.h) ids and targets are those of all ranks, and the losses of this
  // rank's tokens are added up.
  //
  // The losses of a batch: ids [T] I32 and targets [T] I32, the token after each or -1 where none is trained. With a
  // tape in the Ctx, its backward pass leaves the gradients of
  //   main_weight * sum of (main losses + z lse^2) + mtp_weight[i] * sum of those of the prediction block's step i
  // in the parameters. Sums are added to `sums` sequence by sequence, so cutting a batch changes no bit.
  using MtpNumbers = std::array<double, kMtpSteps>;  // one for each step of the prediction block
  struct LossOptions {
    double main_weight = 1;
    bool by_sample = false;   // the main losses, with their z, are means over the targets of each sequence
    MtpNumbers mtp_weight{};  // 0: that step and those after it are not run
    float z = 0;
  };
  struct LossSums {
    double main = 0, z = 0;  // cross-entropies; squared log-sums of the logits of their tokens
    MtpNumbers mtp{};
  };
  void loss(nn::Run& run, const Tensor& ids, const Tensor& targets, const LossOptions& options, LossSums& sums) {
    loss(run, forward(run, ids), ids, targets, options, sums);
  }
  // From x, what forward gave.
  void loss(nn::Run& run, const Tensor& x, const Tensor& ids, const Tensor& targets, const LossOptions& options,
            LossSums& sums);
  // Targets that step `step` of the prediction block has in a batch: all but the first step + 1 of each sequence.
  static int64_t mtp_targets(const SeqMap& seqs, const int32_t* targets, int64_t step);

  const Config& config() const { return config_; }
  int64_t mtp_steps() const { return std::ssize(mtp_); }
  // By Block::state_index. Blocks of a loop come last, `loop_states` times (nn::Loop::states).
  std::vector<nn::StateShape> state_shapes(int64_t loop_states = 1) const;
  size_t loop_states() const { return loop_states_; }  // of one step of the loop
  // Layer number and state index of every Mamba-2 block, in order.
  const std::vector<std::pair<int, int>>& mamba_layers() const { return mamba_layers_; }
  std::vector<Param*> params();

  // Dropout in passes that draw random numbers (nn::Run::draws): the config's, unless the trainer sets others.
  DropoutSpec dropout;

  // The bytes of the parameters.
  std::shared_ptr<WeightStore> store;

 private:
  struct Mtp {
    nn::Norm read_norm;  // the model's final norm, as used before the block reads
    nn::Norm embedding_norm, hidden_norm, final_norm;
    Param embedding, head, projection;
    std::vector<Layer> layers;
  };
  Layer build_layer(const LayerSpec& spec, nn::ParamSource& source, int index, bool mtp);
  void number_states();
  void build_loop(nn::ParamSource& source);
  Tensor embed(nn::Run& run, const Tensor& ids);
  Tensor look_up(nn::Run& run, const Tensor& ids, Param& table);
  Tensor head_logits(nn::Run& run, const Tensor& x, Param& head);
  Tensor block_output(nn::Run& run, Part& part, const Tensor& x);
  Tensor sum_over_ranks(nn::Run& run, Part& part, const Tensor& x);
  nn::HeadLosses losses(nn::Run& run, const Tensor& x, Param& head, const Tensor& targets, const Tensor& weight,
                        float z);
  int64_t first_row() const { return config_.vocab * config_.cut.rank / config_.cut.ranks; }  // of the vocabulary
  nn::Norm build_norm(const std::string& name, nn::ParamSource& source, int layer = -1, bool mtp = false) const;
  Param table(nn::ParamSource& source, ParamRole role) const;
  Tensor through(nn::Run& run, std::span<Layer> layers, Tensor x, std::optional<size_t> row, uint32_t draws = 0);
  void build_mtp(nn::ParamSource& source);
  Tensor mtp_hidden(nn::Run& run, Mtp& mtp, const Tensor& ids, const Tensor& hidden);
  void mtp_loss(nn::Run& run, const Tensor& ids, const Tensor& targets, const Tensor& x, const LossOptions& options,
                LossSums& sums);

  Config config_;
  Param embedding_, positions_, head_;
  std::vector<Layer> layers_;
  nn::Norm final_norm_;
  Param loop_in_;
  nn::Norm loop_norm_;
  std::vector<Mtp> mtp_;  // its steps: further uses of the same parameters
  std::shared_ptr<nn::RopeTable> rope_;
  std::vector<nn::StateShape> state_shapes_;
  size_t loop_states_ = 0;  // the last of them, of the blocks of the loop
  std::vector<std::pair<int, int>> mamba_layers_;
};

}  // namespace braid::models
