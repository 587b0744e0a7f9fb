#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/philox.h"
#include "engine/ranking.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

// Softmax at the temperature, summed in the order of the list.
void set_probabilities(std::vector<Candidate>& list, double temperature) {
  const double top = static_cast<double>(std::min_element(list.begin(), list.end(), better)->logit);
  double sum = 0;
  for (Candidate& c : list) {
    const double p = std::exp((static_cast<double>(c.logit) - top) / temperature);
    c.p = static_cast<float>(p);
    sum += p;
  }
  for (Candidate& c : list) c.p = static_cast<float>(static_cast<double>(c.p) / sum);
}

// Drops what is less likely than `min_p` times the best.
void cut_unlikely(std::vector<Candidate>& list, double min_p) {
  const double least = min_p * static_cast<double>(std::min_element(list.begin(), list.end(), better)->p);
  std::erase_if(list, [least](const Candidate& c) { return static_cast<double>(c.p) < least; });
}

double mass_of(const std::vector<Candidate>& list) {
  double mass = 0;
  for (const Candidate& c : list) mass += static_cast<double>(c.p);
  return mass;
}

// How many of the best reach `top_p` of the mass, at least one; `mass` is set to theirs.
size_t head_of(Ranking& ranking, double top_p, double& mass) {
  size_t n = 0;
  for (mass = 0; n < ranking.size() && (n == 0 || mass < top_p); ++n) mass += static_cast<double>(ranking.at(n).p);
  return n;
}

[[noreturn]] void fail_not_finite(size_t id, float logit) {
  throw Error(Fault::failed_run,
              format_message("logits", {.what = fmt::format("the logit of token {} is not finite", id),
                                        .got = std::isnan(logit) ? "NaN" : "infinity",
                                        .hint = "other weights, or --dtype f32"}));
}

// The likeliest token. Error where the model overflowed or is damaged: sampled text would be noise.
size_t best_of(std::span<const float> logits) {
  size_t best = 0;
  float most = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    const float v = logits[i];
    if (!(v <= std::numeric_limits<float>::max())) fail_not_finite(i, v);
    if (v > most) most = v, best = i;
  }
  if (std::isinf(most))
    throw Error(Fault::failed_run, format_message("logits", {.what = "no token has a probability"}));
  return best;
}

bool changes_logits(const SamplingOptions& o) {
  return o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0 || !o.bias.empty();
}

void penalise_answer(std::vector<Candidate>& list, const SamplingOptions& o, std::span<const int32_t> answer) {
  if (o.presence_penalty == 0 && o.frequency_penalty == 0) return;
  std::vector<int32_t> sorted(answer.begin(), answer.end());
  std::sort(sorted.begin(), sorted.end());
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last = std::upper_bound(first, sorted.end(), *first);
    const double penalty = o.presence_penalty + static_cast<double>(last - first) * o.frequency_penalty;
    list[static_cast<size_t>(*first)].logit -= static_cast<float>(penalty);
    first = last;
  }
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& o, std::span<const int32_t> seen,
               uint64_t position, size_t answer_tokens) {
  const size_t likeliest = best_of(logits);
  if (o.temperature <= 0 && !changes_logits(o)) return static_cast<int32_t>(likeliest);
  std::vector<Candidate> list(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) list[i] = {logits[i], static_cast<int32_t>(i)};
  if (o.repeat_penalty != 1) {
    std::vector<bool> counted(list.size());  // not a sorted copy: a text may have a million tokens
    const auto penalty = static_cast<float>(o.repeat_penalty);
    for (const int32_t id : seen) {
      if (counted[static_cast<size_t>(id)]) continue;
      counted[static_cast<size_t>(id)] = true;
      float& v = list[static_cast<size_t>(id)].logit;
      v = v > 0 ? v / penalty : v * penalty;
    }
  }
  penalise_answer(list, o, seen.last(answer_tokens));
  for (const auto& [id, bias] : o.bias) list[static_cast<size_t>(id)].logit += bias;
  if (o.temperature <= 0) return std::min_element(list.begin(), list.end(), better)->id;
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(list.size())) {
    std::nth_element(list.begin(), list.begin() + o.top_k, list.end(), better);
    list.resize(static_cast<size_t>(o.top_k));
  }
  set_probabilities(list, o.temperature);
  cut_unlikely(list, o.min_p);
  double mass = mass_of(list);
  Ranking ranking(std::move(list));
  const size_t count = o.top_p < 1 ? head_of(ranking, o.top_p, mass) : ranking.size();

  constexpr uint32_t kSamplerStream = 0x5a3b1e;
  double point = static_cast<double>(uniform(philox({.seed = o.seed, .stream = kSamplerStream}, position)[0])) * mass;
  int32_t last = ranking.at(0).id;  // mass left over by rounding goes to the last candidate with p > 0
  for (size_t i = 0; i < count && ranking.at(i).p > 0; ++i) {
    last = ranking.at(i).id;
    point -= static_cast<double>(ranking.at(i).p);
    if (point < 0) break;
  }
  return last;
}

std::vector<TokenLogprob> logprobs_of(std::span<const float> logits, int32_t id, int64_t top, double temperature) {
  const auto scaled = [temperature](float v) { return static_cast<double>(v) / temperature; };
  const double best = scaled(logits[best_of(logits)]);
  double sum = 0;
  for (const float v : logits) sum += std::exp(scaled(v) - best);
  const double log_sum = best + std::log(sum);
  std::vector<TokenLogprob> out{{id, scaled(logits[static_cast<size_t>(id)]) - log_sum}};
  if (top == 0) return out;
  std::vector<Candidate> list(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) list[i] = {logits[i], static_cast<int32_t>(i)};
  Ranking ranking(std::move(list));
  for (size_t i = 0; i < std::min(static_cast<size_t>(top), ranking.size()); ++i)
    out.push_back({ranking.at(i).id, scaled(ranking.at(i).logit) - log_sum});
  return out;
}

}  // namespace braid::engine
