#include "train/preference.h"

#include <array>

#include "train/token_gradient.h"

namespace braid::train {
namespace {

PreferenceKind kind_of(const std::string& name) {
  return name == "ipo" ? PreferenceKind::ipo : name == "rpo" ? PreferenceKind::rpo : PreferenceKind::dpo;
}

// An answer: its tokens and how likely they are.
struct Likelihood {
  double logprob = 0, start = 0;  // sums over its targets; the latter of the model at the start
  double tokens = 0;
};

Likelihood likelihood_of(const Seq& seq, const data::Batch& rows, const float* losses,
                         std::span<const float> reference) {
  Likelihood sum;
  for (auto t = static_cast<size_t>(seq.start); t < static_cast<size_t>(seq.start + seq.len); ++t) {
    if (rows.targets[t] == data::kMasked) continue;
    sum.logprob -= static_cast<double>(losses[t]);
    sum.start -= static_cast<double>(reference[t]);
    ++sum.tokens;
  }
  return sum;
}

}  // namespace

Preference::Preference(const Recipe& recipe, const io::ModelPath& start)
    : recipe_(recipe.preference),
      loss_{.kind = kind_of(recipe_.kind), .beta = recipe_.beta, .eta = recipe_.eta},
      start_(start, numerics_of(recipe)) {}

void Preference::look(Ctx& ctx, const TaskPart& part) { reference_ = start_.losses(ctx, part.rows, part.held_out); }

void Preference::run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
                     Sums& sums) {
  const data::Batch& rows = part.rows;
  for (const char* name : {"loss", "margin", "accuracy"}) sums.add(name, 0, 0);
  if (recipe_.nll > 0) sums.add("nll", 0, 0);
  TokenGradient gradient(run, model.losses_of(run, ids, targets));
  const double pairs = static_cast<double>(part.whole.row_ids.size());
  for (size_t pair = 0; pair < rows.row_ids.size(); ++pair) {
    const std::array<Seq, 2> seqs = {rows.seqs.seqs[2 * pair], rows.seqs.seqs[2 * pair + 1]};
    const std::array<data::Rating, 2> ratings = {rows.ratings[2 * pair], rows.ratings[2 * pair + 1]};
    std::array<Likelihood, 2> answers;
    for (size_t i = 0; i < 2; ++i) answers[i] = likelihood_of(seqs[i], rows, gradient.losses(), reference_);
    if (answers[0].tokens == 0 || answers[1].tokens == 0) continue;  // a held-out pair that was counted before
    const auto gain = [&](const Likelihood& a) {
      return (a.logprob - a.start) / (recipe_.length_average ? a.tokens : 1);
    };
    const double odds = gain(answers[0]) - gain(answers[1]);
    const Slope slope = loss_.at(odds, ratings[0].reward - ratings[1].reward);
    const double nll = -answers[0].logprob / answers[0].tokens;
    for (size_t i = 0; i < 2; ++i) {
      double each = (i == 0 ? 1 : -1) * slope.derivative / (recipe_.length_average ? answers[i].tokens : 1);
      if (i == 0) each -= recipe_.nll / answers[0].tokens;
      gradient.of_logprobs(seqs[i], rows, each / pairs);
    }
    sums.add("loss", slope.loss + recipe_.nll * nll, 1);
    sums.add("margin", recipe_.beta * odds, 1);
    sums.add("accuracy", odds > 0 ? 1 : 0, 1);
    if (recipe_.nll > 0) sums.add("nll", nll, 1);
  }
  gradient.finish();
}

}  // namespace braid::train
