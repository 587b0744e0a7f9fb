// Distillation as a task: the next tokens of a student follow those of a teacher, a larger model or the same one before
// it was pruned or quantised, which runs alongside. The loss of a token is weight T^2 KL(teacher || student) + ce times
// its cross-entropy, the divergence at temperature T (kernels/head_loss/distill_loss.h; Hinton et al. 2015). Of the
// teacher its likeliest tokens may do, which a cache may hold (teacher_entries.h); held-out rows ask the teacher
// itself.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "train/frozen.h"
#include "train/task.h"
#include "train/teacher_entries.h"

namespace braid::train {

class Distill final : public Task {
 public:
  // Makes the cache of the recipe if it is missing.
  Distill(const Recipe& recipe, const models::Config& config, std::unique_ptr<Frozen> teacher, Ctx& ctx);
  void look(Ctx& ctx, const TaskPart& part) override;
  void run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
           Sums& sums) override;

 private:
  DistillRecipe recipe_;
  std::unique_ptr<Frozen> teacher_;
  std::optional<EntriesCache> cache_;
  nn::Teacher taught_;  // of the part
};

// The recipe's teacher, as products of `numerics`. Error when a student of `config`, whose tokenizer is in the folder
// `student`, has another vocabulary.
std::unique_ptr<Frozen> load_teacher(const Recipe& recipe, const models::Config& config,
                                     const std::filesystem::path& student);

// A dry pass over the task with a teacher of the sizes of the recipe's. What it says is not planned, so it is in
// another arena, which outlives the tape.
void rehearse_distill(const Recipe& recipe, Arena& beside, nn::Run& run, models::Model& model, const Tensor& ids,
                      const Tensor& targets);

}  // namespace braid::train
