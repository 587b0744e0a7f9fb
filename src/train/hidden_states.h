// The part of a distillation that compares hidden states: after every layer of the student its residual stream is to
// point where the teacher's points as deep in the stack (kernels/hidden_loss/hidden_loss.h). Where the widths differ, a
// learnt map of the student's stream to the teacher's width stands between, one for all layers, since all of them
// write to one stream. It belongs to the run, not to the model: it is among the masters (MasterWeights::beside), so
// that it is clipped, averaged, divided among ranks and checkpointed as all parameters are, but no model has it.
//   Bercovich et al. 2024 (Puzzle), https://arxiv.org/abs/2411.19146; a map as in Jiao et al. 2020 (TinyBERT),
//   https://arxiv.org/abs/1909.10351
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/param.h"
#include "core/tensor.h"
#include "models/master_weights.h"
#include "models/model.h"
#include "nn/ops.h"
#include "nn/run.h"
#include "train/recipe.h"

namespace braid::train {

// Room for the map [teacher's width, student's width], a use after every layer of the student. Every use has a gradient
// of its own: added up layer by layer, they do not depend on how a batch is cut. Before the masters are loaded.
void reserve_map(models::MasterWeights& masters, int64_t teacher, int64_t student, int64_t layers);
// Normal with deviation 1 / sqrt(student's width). When the masters are loaded.
void draw_map(models::MasterWeights& masters, uint64_t seed);

// After each layer of the student: how many layers of the teacher have run then, in proportion.
std::vector<int64_t> matched_layers(int64_t student, int64_t teacher);

// 1 minus the cosine of x [T, D] F32, by a map if there is one, and y [T, Dt] F32: [T] F32. With a tape the gradients
// of token_weight [T] times it.
Tensor hidden_loss(nn::Run& run, const Tensor& x, const Tensor& y, const Tensor& token_weight, Param* map);

// What a student is compared with.
struct HiddenGoal {
  std::vector<Tensor> states{};  // after each of its layers, [T, Dt] F32
  Tensor token_weight{};         // [T] F32, of each layer
  std::span<Param> maps{};       // one per layer; empty: the widths are equal
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
