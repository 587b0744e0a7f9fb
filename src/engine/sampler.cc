#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/philox.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

struct Candidate {
  float value;  // logit, then probability
  int32_t id;
};

bool better(const Candidate& a, const Candidate& b) { return a.value != b.value ? a.value > b.value : a.id < b.id; }

// Softmax at the temperature; sorted by falling probability before and after.
void to_probabilities(std::vector<Candidate>& list, double temperature) {
  const double top = static_cast<double>(list[0].value);
  double sum = 0;
  for (Candidate& c : list) {
    const double p = std::exp((static_cast<double>(c.value) - top) / temperature);
    c.value = static_cast<float>(p);
    sum += p;
  }
  for (Candidate& c : list) c.value = static_cast<float>(static_cast<double>(c.value) / sum);
}

// The shortest head of the list that holds top_p of the mass, less what min_p of the best cuts off.
size_t kept(const std::vector<Candidate>& list, const SamplingOptions& o) {
  double mass = 0;
  size_t n = 0;
  while (n < list.size() && mass < o.top_p &&
         static_cast<double>(list[n].value) >= o.min_p * static_cast<double>(list[0].value)) {
    mass += static_cast<double>(list[n++].value);
  }
  return std::max<size_t>(n, 1);
}

// A model that overflowed or was damaged: an answer drawn from it would be noise.
void check_logits(std::span<const float> logits) {
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool none = std::isnan(logits[i]) || logits[i] > std::numeric_limits<float>::max();
    if (none) {
      throw Error(Fault::failed_run, format_message("logits", {.what = fmt::format("that of token {} is no number", i),
                                                               .got = std::isnan(logits[i]) ? "NaN" : "infinity",
                                                               .hint = "other weights, or --dtype f32"}));
    }
    any = any || std::isfinite(logits[i]);
  }
  if (!any) throw Error(Fault::failed_run, format_message("logits", {.what = "no token has a probability"}));
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& o, std::span<const int32_t> seen,
               uint64_t position) {
  check_logits(logits);
  std::vector<Candidate> list(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) list[i] = {logits[i], static_cast<int32_t>(i)};
  if (o.repeat_penalty != 1) {
    std::vector<int32_t> unique(seen.begin(), seen.end());
    std::sort(unique.begin(), unique.end());
    unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
    const auto penalty = static_cast<float>(o.repeat_penalty);
    for (int32_t id : unique) {
      float& v = list[static_cast<size_t>(id)].value;
      v = v > 0 ? v / penalty : v * penalty;
    }
  }
  if (o.temperature <= 0) return std::min_element(list.begin(), list.end(), better)->id;
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(list.size())) {
    std::nth_element(list.begin(), list.begin() + o.top_k, list.end(), better);
    list.resize(static_cast<size_t>(o.top_k));
  }
  std::sort(list.begin(), list.end(), better);
  to_probabilities(list, o.temperature);
  list.resize(kept(list, o));
  double mass = 0;
  for (const Candidate& c : list) mass += static_cast<double>(c.value);
  constexpr uint32_t kSamplerStream = 0x5a3b1e;
  double point = static_cast<double>(uniform(philox({.seed = o.seed, .stream = kSamplerStream}, position)[0])) * mass;
  for (const Candidate& c : list) {
    point -= static_cast<double>(c.value);
    if (point < 0) return c.id;
  }
  return list.back().id;
}

}  // namespace braid::engine
