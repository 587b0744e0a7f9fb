// How far a model is from the one that it was made from, token by token of a text: Kullback-Leibler divergence of the
// distributions of the next token, how often both name the same likeliest token, and both perplexities. The windows,
// scored tokens and figures are those of llama-perplexity --kl-divergence.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "eval/perplexity.h"

namespace braid::eval {

struct Divergence {
  Perplexity model, base;
  double ratio_error = 0;   // standard error of model.value() / base.value(), whose losses are correlated
  std::vector<float> kl{};  // KL(base || model) of every scored token, in nats, ascending
  int64_t same_top = 0;     // scored tokens whose likeliest next token both agree on

  double ratio() const { return model.value() / base.value(); }
  double mean_kl() const;
  double kl_error() const;             // standard error of the mean
  float kl_at(double fraction) const;  // quantile
  double same_top_share() const;       // 0 to 1
};

// Reads the windows with both models, piece by piece in sequence 0 of each. `progress` as in perplexity(). Error when
// the vocabularies differ in size, or a probability is not finite.
Divergence divergence(engine::Runner& model, engine::Runner& base, std::span<const int32_t> ids,
                      std::span<const Window> windows, std::optional<int32_t> bos,
                      const sys::FunctionRef<bool(int64_t)>& progress);

}  // namespace braid::eval
