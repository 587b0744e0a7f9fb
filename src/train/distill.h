// Distillation as a task: the next tokens of a student follow those of a teacher, a larger model or the same one before
// it was pruned or quantised, which runs alongside. The loss of a token is weight T^2 KL(teacher || student) + ce times
// its cross-entropy, the divergence at temperature T (kernels/head_loss/distill_loss.h; Hinton et al. 2015). Of the
// teacher its likeliest tokens may do, which a cache may hold (teacher_entries.h); held-out rows ask the teacher
// itself. With `hidden` the states between the layers follow the teacher's, too (hidden_states.h).
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "train/frozen.h"
#include "train/hidden_states.h"
#include "train/task.h"
#include "train/teacher_entries.h"

namespace braid::train {

class Distill final : public Task {
 public:
  // Makes the cache of the recipe, which outlives this, if it is missing. `maps`: of hidden states, if widths differ.
  Distill(const Recipe& recipe, const models::Config& config, std::unique_ptr<Frozen> teacher, std::span<Param> maps,
          Ctx& ctx);
  void look(Ctx& ctx, const TaskPart& part) override;
  void run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
           Sums& sums) override;

 private:
  double layer_share() const { return recipe_.hidden / static_cast<double>(std::ssize(ends_)); }

  DistillRecipe recipe_;
  std::unique_ptr<Frozen> teacher_;
  std::optional<EntriesCache> cache_;
  nn::Teacher taught_;         // of the part
  std::vector<int64_t> ends_;  // with `hidden`: layers of the teacher, for each of the student's
  std::span<Param> maps_;
  std::vector<Tensor> states_;  // of the teacher after them, of the part
};

// The recipe's teacher, as products of `numerics`. Error when a student of `config`, whose tokenizer is in the folder
// `student`, has another vocabulary.
std::unique_ptr<Frozen> load_teacher(const Recipe& recipe, const models::Config& config,
                                     const std::filesystem::path& student);

// Room for the map of hidden states, if the recipe needs one for a student of `config` (hidden_states.h).
void reserve_map(const Recipe& recipe, const models::Config& config, models::MasterWeights& masters);

// What a dry pass has in place of the map, whose numbers nobody reads.
struct DryMap {
  Tensor value{}, grad{};
  std::vector<Param> uses{};
};
// A dry pass over the task with a teacher of the sizes of the recipe's. What it says is not planned, so it is in
// another arena, which outlives the tape; so does the map, made where it is needed.
void rehearse_distill(const Recipe& recipe, Arena& beside, DryMap& map, nn::Run& run, models::Model& model,
                      const Tensor& ids, const Tensor& targets);

}  // namespace braid::train
