// When a token has had enough steps of recurrent depth (arXiv 2502.05171, section 5.1): when what the steps give has
// stopped changing. The rules and their thresholds are those of the paper's public code.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace braid::engine {

enum class Exit : uint8_t {
  never,
  kl,       // KL(before || after) of the next token's distribution is below the threshold; 1e-3
  latent,   // |s_i - s_{i-1}| / |s_i| is; 0.03
  entropy,  // the change of the distribution's entropy is, in nats; 1e-3
  argmax,   // the likeliest token has been the same in so many further steps; 5
};

class ExitRule {
 public:
  // `threshold`: 0 for the rule's own. `start`: the state before the first step, [D].
  ExitRule(Exit kind, double threshold, std::span<const float> start);

  // What `enough` is given: logits, or the state itself.
  static bool reads_logits(Exit kind) { return kind != Exit::never && kind != Exit::latent; }
  // After each step: logits [V] or state [D] -> whether there need be no further step.
  bool enough(std::span<const float> values);

 private:
  double change(std::span<const float> values);
  double kl_from_last(std::span<const float> logits);

  Exit kind_;
  double threshold_;
  std::vector<float> state_;       // latent: the last one
  std::vector<double> log_probs_;  // kl: the last ones; empty: a uniform distribution
  double entropy_ = 100;           // before the first step, larger than any
  int64_t argmax_ = -1, stable_ = 0;
};

}  // namespace braid::engine
