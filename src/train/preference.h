// Preferences as a task: a row is a pair of answers, the chosen one first; the loss of a pair depends on how much more
// likely the chosen one became since the start than the rejected one (answer_loss.h). Direct, identity and
// reward-aware preference optimisation, with the likelihood of the chosen answer added if the recipe says so.
#pragma once
#include "train/answer_loss.h"
#include "train/frozen.h"
#include "train/task.h"

namespace braid::train {

class Preference final : public Task {
 public:
  Preference(const Recipe& recipe, const io::ModelPath& start);
  void look(Ctx& ctx, const TaskPart& part) override;
  void run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
           Sums& sums) override;

 private:
  PreferenceRecipe recipe_;
  PreferenceLoss loss_;
  Frozen start_;
  std::span<const float> reference_;  // losses of the part's tokens at the start
};

}  // namespace braid::train
