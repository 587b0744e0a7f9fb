#include "train/policy.h"

#include <algorithm>
#include <cmath>

#include "train/rollout.h"
#include "train/token_gradient.h"

namespace braid::train {
namespace {

Advantage advantage_named(const std::string& name) {
  return name == "leave-one-out" ? Advantage::leave_one_out : name == "std" ? Advantage::std : Advantage::mean;
}

// Answers with a target: those that were cut may have none.
double trained_answers(const data::Batch& rows) {
  double count = 0;
  for (const Seq& s : rows.seqs.seqs) {
    const auto first = rows.targets.begin() + s.start;
    count += std::any_of(first, first + s.len, [](int32_t target) { return target != data::kMasked; }) ? 1 : 0;
  }
  return count;
}

template <class Body>
void each_target(const Seq& seq, const data::Batch& rows, Body&& body) {
  for (auto t = static_cast<size_t>(seq.start); t < static_cast<size_t>(seq.start + seq.len); ++t) {
    if (rows.targets[t] != data::kMasked) body(t);
  }
}

}  // namespace

Policy::Policy(const Recipe& recipe, const io::ModelPath& start, std::unique_ptr<Frozen> teacher)
    : recipe_(recipe.policy),
      clip_{.low = recipe_.clip_low, .high = recipe_.clip_high, .dual = recipe_.dual_clip},
      advantage_(advantage_named(recipe_.advantage)),
      whole_(recipe_.ratio == "sequence"),
      generates_(generates(recipe)),
      teacher_(std::move(teacher)) {
  if (recipe_.kl > 0 || (recipe_.importance_cap > 0 && !generates_)) start_.emplace(start, numerics_of(recipe));
}

void Policy::look(Ctx& ctx, const TaskPart& part) {
  if (start_ && generates_) start_->forget();  // no answer comes twice
  if (teacher_ && generates_) teacher_->forget();
  if (start_) reference_ = start_->losses(ctx, part.rows, part.held_out);
  if (teacher_) taught_ = teacher_->losses(ctx, part.rows, part.held_out);
}

// Of the policy that a token's ratio is to.
double Policy::old_logprob(size_t t, const data::Batch& rows) const {
  if (!rows.trainer_logprobs.empty()) return static_cast<double>(rows.trainer_logprobs[t]);
  return recipe_.importance_cap > 0 ? -static_cast<double>(reference_[t]) : static_cast<double>(rows.logprobs[t]);
}

Policy::Answer Policy::answer_of(size_t number, const TaskPart& part, double trained, const float* losses) const {
  Answer answer{.seq = part.rows.seqs.seqs[number]};
  if (!teacher_) answer.advantage = advantage_of(advantage_, part.rows.ratings[number]);
  each_target(answer.seq, part.rows, [&](size_t t) {
    answer.log_ratio -= static_cast<double>(losses[t]) + old_logprob(t, part.rows);
    ++answer.tokens;
  });
  if (answer.tokens == 0) return answer;
  answer.log_ratio /= answer.tokens;
  answer.scale = 1 / (recipe_.aggregate == "token" ? trained : trained * answer.tokens);
  return answer;
}

void Policy::run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
                 Sums& sums) {
  const data::Batch& rows = part.rows;
  const double trained =
      recipe_.aggregate == "token" ? static_cast<double>(part.whole.trained) : trained_answers(part.whole);
  if (!teacher_) sums.add("reward", 0, 0);
  for (const char* name : {"loss", "ratio", "clipped", "mismatch", "mismatch_kl"}) sums.add(name, 0, 0);
  if (recipe_.kl > 0) sums.add("kl", 0, 0);
  TokenGradient gradient(run, model.losses_of(run, ids, targets));
  for (size_t number = 0; number < rows.row_ids.size(); ++number) {
    const Answer answer = answer_of(number, part, trained, gradient.losses());
    if (answer.tokens == 0) continue;
    if (!teacher_) sums.add("reward", rows.ratings[number].reward, 1);
    double total = 0, kl = 0, ratios = 0, clipped = 0, apart = 0, divergence = 0;
    each_target(answer.seq, rows, [&](size_t t) {
      const double logprob = -static_cast<double>(gradient.losses()[t]),
                   sampled = static_cast<double>(rows.logprobs[t]);
      const double log_ratio = whole_ ? answer.log_ratio : logprob - old_logprob(t, rows);
      const double advantage = teacher_ ? -static_cast<double>(taught_[t]) - logprob : answer.advantage;
      double weight = 1;
      if (recipe_.importance_cap > 0)
        weight = std::min(std::exp(old_logprob(t, rows) - sampled), recipe_.importance_cap);
      const PolicySlope slope = policy_loss(log_ratio, advantage, clip_);
      Slope away;
      if (recipe_.kl > 0) away = kl_estimate(-static_cast<double>(reference_[t]) - logprob);
      // The ratio of an answer is a mean over its tokens: each moves it by its share, in all of their terms.
      gradient.of_logprob(t, answer.scale * (weight * slope.derivative + recipe_.kl * away.derivative));
      total += weight * slope.loss + recipe_.kl * away.loss;
      kl += away.loss;
      ratios += ratio_of(log_ratio).loss;
      clipped += slope.clipped ? 1 : 0;
      apart += std::fabs(logprob - sampled);
      divergence += kl_estimate(logprob - sampled).loss;
    });
    const bool by_token = recipe_.aggregate == "token";
    sums.add("loss", by_token ? total : total / answer.tokens, by_token ? answer.tokens : 1);
    sums.add("ratio", ratios, answer.tokens);
    sums.add("clipped", clipped, answer.tokens);
    sums.add("mismatch", apart, answer.tokens);
    sums.add("mismatch_kl", divergence, answer.tokens);
    if (recipe_.kl > 0) sums.add("kl", kl, answer.tokens);
  }
  gradient.finish();
}

}  // namespace braid::train
