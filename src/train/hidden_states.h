// The part of a distillation that compares hidden states: after every layer of the student its residual stream is to
// point where the teacher's points as deep in the stack (kernels/hidden_loss/hidden_loss.h). Where the widths differ, a
// learnt map of the student's stream to the teacher's width stands between, one for all layers, since all of them
// write to one stream. It belongs to the run, not to the model: checkpoints have it beside the optimiser's state.
//   Bercovich et al. 2024 (Puzzle), https://arxiv.org/abs/2411.19146; a map as in Jiao et al. 2020 (TinyBERT),
//   https://arxiv.org/abs/1909.10351
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/param.h"
#include "core/tensor.h"
#include "models/model.h"
#include "nn/ops.h"
#include "nn/run.h"
#include "train/recipe.h"

namespace braid::train {

// w [teacher's width, student's width], normal with deviation 1 / sqrt(student's width) at the start, trained by AdamW
// without decay at the rate of the run. Every layer is a use of it with a gradient of its own: added up layer by layer,
// they do not depend on how a batch is cut.
//
// An exception to what the loop does with parameters, as it is none of the model's: its gradient is neither clipped nor
// counted in the norm, no running mean follows it, and spikes are seen in the loss alone.
class Projection {
 public:
  Projection(int64_t teacher, int64_t student, int64_t uses, uint64_t seed);
  Projection(const Projection&) = delete;
  Projection& operator=(const Projection&) = delete;

  // Of a use; a rehearsal, which computes nothing, has one for all.
  Param& use(int64_t i) { return uses_[static_cast<size_t>(i) % uses_.size()]; }
  // Of all uses, one after the other.
  std::span<const float> gradients() const { return gradients_; }
  void step(const OptimizerRecipe& recipe, double lr);
  void zero_gradients();
  // projection.safetensors in the folder of a checkpoint's state. Error where there is none of this shape.
  void write(const std::filesystem::path& folder) const;
  void read(const std::filesystem::path& folder);

 private:
  Shape shape() const { return {uses_[0].value.rows, uses_[0].value.cols}; }

  std::vector<float> values_, gradients_, first_, second_;
  int64_t updates_ = 0;
  std::vector<Param> uses_;
  Arena arena_;  // of its steps
};

// After each layer of the student: how many layers of the teacher have run then, in proportion.
std::vector<int64_t> matched_layers(int64_t student, int64_t teacher);

// 1 minus the cosine of x [T, D] F32, by a map if there is one, and y [T, Dt] F32: [T] F32. With a tape the gradients
// of token_weight [T] times it.
Tensor hidden_loss(nn::Run& run, const Tensor& x, const Tensor& y, const Tensor& token_weight, Param* map);

// What a student is compared with.
struct HiddenGoal {
  std::vector<Tensor> states{};  // after each of its layers, [T, Dt] F32
  Tensor token_weight{};         // [T] F32, of each layer
  Projection* projection = nullptr;
};
struct HiddenLosses {
  nn::DistillLosses head{};
  std::vector<Tensor> layers{};  // [T] F32
};
// models::Model::distill, with the losses of the layers.
HiddenLosses distill_with_states(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets,
                                 const Tensor& token_weight, const nn::Teacher& teacher, const HiddenGoal& goal);

// A pass without a tape: the residual stream after so many layers, for each of `ends`, ascending, [T, D] F32; and what
// the head reads.
std::vector<Tensor> states_of(nn::Run& run, models::Model& model, const Tensor& ids, std::span<const int64_t> ends,
                              Tensor& head_input);

}  // namespace braid::train
