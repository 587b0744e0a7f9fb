#include "train/depth.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/philox.h"
#include "data/shuffle.h"
#include "models/loop_start.h"

namespace braid::train {
namespace {

constexpr uint32_t kDepth = 0x64707468, kStart = 0x6c6f6f70;  // streams of random numbers: "dpth", "loop"

}  // namespace

models::LoopSpec loop_of(const Recipe& recipe, const models::LoopSpec& spec) {
  models::LoopSpec loop = spec;
  if (recipe.loop.mean > 0) loop.steps = recipe.loop.mean;
  if (recipe.loop.backward > 0) loop.backward_steps = recipe.loop.backward;
  return loop;
}

// The Poisson number by inversion: how many terms of its distribution a uniform number exceeds.
Depth draw_depth(const models::LoopSpec& spec, double sigma, uint64_t seed, int64_t step) {
  const RandomKey key{seed, kDepth};
  const auto index = static_cast<uint64_t>(step);
  const double z = normal4(key, 2 * index)[0], u = uniform(philox(key, 2 * index + 1)[0]);
  const double rate = std::min(std::exp(std::log(static_cast<double>(spec.steps)) - sigma * sigma / 2 + sigma * z),
                               static_cast<double>(models::kLoopSteps) / 2);  // exp(-rate) must not be 0
  int64_t events = 0;
  for (double term = std::exp(-rate), sum = term; sum < u && events + 1 < models::kLoopSteps; sum += term)
    term *= rate / static_cast<double>(++events);
  const int64_t steps = events + 1;
  return {.steps = steps, .backward = std::min(steps, spec.backward_steps)};
}

void fill_starts(const models::LoopSpec& spec, uint64_t key, const SeqMap& seqs, const MutView& states) {
  for (const Seq& s : seqs.seqs) {
    const RandomKey own{data::mix(key, static_cast<uint64_t>(s.sample_id)), kStart};
    for (int64_t t = 0; t < s.len; ++t)
      models::loop_start(spec, own, s.pos0 + t, {states.as<float>(s.start + t), static_cast<size_t>(states.dim(1))});
  }
}

}  // namespace braid::train
