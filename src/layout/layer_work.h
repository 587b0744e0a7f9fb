// The work of one layer (step.h) from its shapes on a rank.
#pragma once
#include "layout/step.h"
#include "nn/hidden_parallel.h"
#include "plan/memory.h"

namespace braid::layout {

class LayerCosting {
 public:
  // `tokens`: of a part on this rank, before ranks of a model divide them (sp).
  LayerCosting(const Model& model, const RankModel& rank, const Device& device, const Task& task, const Layout& layout,
               double tokens);

  LayerWork layer(const LayerPart& kind) const;
  LayerWork table() const;
  LayerWork head() const;  // final norm, head and losses; the prediction block, if it is trained

 private:
  double weight_seconds(const Matrices& p, double rows) const;
  double behind_weights(const LayerPart& kind) const;
  void products(const LayerPart& kind, double rows, LayerWork& work) const;
  void kernels(double forward, double backward, LayerWork& work) const;
  void block(const models::PartSpec& part, LayerWork& work) const;
  void stream_calls(const LayerPart& kind, const models::PartSpec& part, LayerWork& work) const;
  void hidden_calls(const LayerPart& kind, LayerWork& work) const;
  void shared_calls(const LayerPart& kind, LayerWork& work) const;
  void expert_calls(const nn::MoeSpec& spec, LayerWork& work) const;
  void context_calls(const nn::AttentionSpec& spec, LayerWork& work) const;
  void context_calls(const nn::Mamba2Spec& spec, LayerWork& work) const;
  void retain(const models::PartSpec& part, LayerWork& work) const;
  double exchanged_copies(const models::PartSpec& part) const;
  void head_pass(LayerWork& work) const;
  double experts_workspace(const nn::MoeSpec& spec) const;
  double expert_rows(const nn::MoeSpec& spec) const;  // that arrive for the experts of a rank
  double own_tokens() const { return layout_.parallel.sp ? tokens_ / x_ : tokens_; }

  const Model& model_;
  const RankModel& rank_;
  const Device& device_;
  const Task& task_;
  const Layout& layout_;
  double tokens_, x_, y_;  // ranks that divide blocks, and the stream
  double width_;           // of the stream here
  double element_, sum_;   // bytes of what products read, and of what ranks add up
  bool hides_ = false;     // sums of input gradients travel behind gradients of weights
  bool ring_ = false, states_ = false;
};

}  // namespace braid::layout
