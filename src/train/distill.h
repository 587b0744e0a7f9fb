// Distillation as a task: the next tokens of a student follow those of a teacher, a larger model or the same one before
// it was pruned or quantised, which runs alongside. The loss of a token is weight T^2 KL(teacher || student) + ce times
// its cross-entropy, the divergence at temperature T (kernels/head_loss/distill_loss.h; Hinton et al. 2015). Of the
// teacher its likeliest tokens may do, which a cache may hold (teacher_entries.h); held-out rows ask the teacher
// itself. With `hidden` the states between the layers follow the teacher's, too (hidden_states.h).
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "train/frozen.h"
#include "train/hidden_states.h"
#include "train/task.h"
#include "train/teacher_entries.h"

namespace braid::train {

class Distill final : public Task {
 public:
  // Makes the cache of the recipe, which outlives this, if it is missing.
  Distill(const Recipe& recipe, const models::Config& config, std::unique_ptr<Frozen> teacher, Ctx& ctx);
  void look(Ctx& ctx, const TaskPart& part) override;
  void run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
           Sums& sums) override;
  void finish(int64_t step, bool updated) override;
  void write_state(const std::filesystem::path& folder) const override;
  void read_state(const std::filesystem::path& folder) override;

 private:
  double layer_share() const { return recipe_.hidden / static_cast<double>(std::ssize(ends_)); }

  const Recipe& all_;
  DistillRecipe recipe_;
  std::unique_ptr<Frozen> teacher_;
  std::optional<EntriesCache> cache_;
  nn::Teacher taught_;                    // of the part
  std::vector<int64_t> ends_;             // with `hidden`: layers of the teacher, for each of the student's
  std::optional<Projection> projection_;  // where the widths differ
  std::vector<Tensor> states_;            // of the teacher after them, of the part
};

// The recipe's teacher, as products of `numerics`. Error when a student of `config`, whose tokenizer is in the folder
// `student`, has another vocabulary.
std::unique_ptr<Frozen> load_teacher(const Recipe& recipe, const models::Config& config,
                                     const std::filesystem::path& student);

// A dry pass over the task with a teacher of the sizes of the recipe's. What it says is not planned, so it is in
// another arena, which outlives the tape; so does the projection, made where it is needed.
void rehearse_distill(const Recipe& recipe, Arena& beside, std::optional<Projection>& projection, nn::Run& run,
                      models::Model& model, const Tensor& ids, const Tensor& targets);

}  // namespace braid::train
