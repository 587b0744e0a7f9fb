// Rewards as a task: clipped policy gradients over recorded rollouts (answer_loss.h). A row is an answer with its
// reward and the log-probabilities it was sampled with; its advantage is its reward over those of its group, or, token
// by token, how much likelier a teacher finds it. Ratios are to the recorded log-probabilities. With `importance_cap`
// they are to the model at the start, and the ratio of that to the recorded ones, at most the cap, weights a token:
// what trainer and sampler compute differently then does not count as a step of the policy. Answers that the run has
// generated (rollout.h) have the trainer's log-probabilities of that time in place of those at the start.
#pragma once
#include <optional>

#include "train/answer_loss.h"
#include "train/frozen.h"
#include "train/task.h"

namespace braid::train {

class Policy final : public Task {
 public:
  // With a teacher for its advantage.
  Policy(const Recipe& recipe, const io::ModelPath& start, std::unique_ptr<Frozen> teacher);
  void look(Ctx& ctx, const TaskPart& part) override;
  void run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
           Sums& sums) override;

 private:
  struct Answer {
    Seq seq;
    double advantage = 0, tokens = 0;
    double log_ratio = 0;  // the mean over its tokens
    double scale = 0;      // of a token in the loss
  };
  // `trained`: tokens of the batch, or its answers, as the loss counts them.
  Answer answer_of(size_t number, const TaskPart& part, double trained, const float* losses) const;
  double old_logprob(size_t t, const data::Batch& rows) const;

  PolicyRecipe recipe_;
  Clip clip_;
  Advantage advantage_ = Advantage::mean;
  bool whole_;                   // ratios of answers, not of tokens
  bool generates_;               // by this run
  std::optional<Frozen> start_;  // if something needs it
  std::unique_ptr<Frozen> teacher_;
  std::span<const float> reference_, taught_;  // losses of the part's tokens: at the start, of the teacher
};

}  // namespace braid::train
