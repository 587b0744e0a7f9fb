#include "prune/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/philox.h"
#include "sys/check.h"

namespace braid::prune {
namespace {

using models::Config;

struct Lengths {
  std::map<std::pair<Axis, int>, std::vector<double>>& of;
  int layer = 0;

  void add(Axis axis, int64_t n) const {
    if (n > 0) of[{axis, layer}].resize(static_cast<size_t>(n));
  }
  void operator()(const nn::Mamba2Spec& m) const { add(Axis::mamba_heads, m.inner()); }
  void operator()(const nn::AttentionSpec& a) const { add(Axis::heads, a.heads); }
  void operator()(const nn::MlpSpec& f) const { add(Axis::ffn, f.width); }
  void operator()(const nn::MoeSpec& e) const {
    add(Axis::experts, e.experts);
    add(Axis::expert_ffn, e.experts * e.width);
    add(Axis::shared_ffn, e.shared_width);
    add(Axis::latent, e.latent);
  }
  void operator()(const models::LinearSpec&) const {}
};

}  // namespace

Scores random_scores(const Config& config, uint64_t seed) {
  Scores scores;
  Lengths lengths{scores.of};
  const auto gather = [&](const std::vector<models::LayerSpec>& layers) {
    for (const models::LayerSpec& layer : layers) {
      for (const models::PartSpec& part : layer.parts) std::visit(lengths, part.block);
      ++lengths.layer;
    }
  };
  gather(config.layers);
  if (config.mtp) gather(config.mtp->layers);
  scores.of[{Axis::hidden, -1}].resize(static_cast<size_t>(config.hidden));
  scores.of[{Axis::layers, -1}].resize(config.layers.size());
  uint32_t stream = 0;
  for (auto& [key, values] : scores.of) {
    const RandomKey random{.seed = seed, .stream = stream++};
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(uniform(philox(random, i)[0]));
  }
  return scores;
}

std::vector<int64_t> ranked(std::span<const double> scores, int64_t groups) {
  const int64_t size = std::ssize(scores) / groups;
  CHECK(size * groups == std::ssize(scores), "{} in {} groups", scores.size(), groups);
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  for (int64_t g = 0; g < groups; ++g) {
    std::stable_sort(order.begin() + g * size, order.begin() + (g + 1) * size, [&](int64_t a, int64_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
  }
  return order;
}

std::vector<int64_t> keep_best(std::span<const double> scores, int64_t n) { return keep_in_groups(scores, 1, n); }

std::vector<int64_t> keep_in_groups(std::span<const double> scores, int64_t groups, int64_t n) {
  CHECK(n % groups == 0 && n <= std::ssize(scores), "{} of {} in {} groups", n, scores.size(), groups);
  std::vector<int64_t> kept = first_in_groups(ranked(scores, groups), groups, n);
  std::sort(kept.begin(), kept.end());
  return kept;
}

std::vector<int64_t> first_in_groups(std::span<const int64_t> order, int64_t groups, int64_t n) {
  const int64_t size = std::ssize(order) / groups;
  std::vector<int64_t> list;
  for (int64_t g = 0; g < groups; ++g)
    list.insert(list.end(), order.begin() + g * size, order.begin() + g * size + n / groups);
  return list;
}

std::vector<double> channels_over_heads(std::span<const double> scores, int64_t heads) {
  std::vector<double> out(scores.size() / static_cast<size_t>(heads));
  for (size_t i = 0; i < scores.size(); ++i) out[i % out.size()] += square(scores[i]);
  for (double& v : out) v = std::sqrt(v);
  return out;
}

std::vector<double> heads_over_channels(std::span<const double> scores, int64_t heads, std::span<const int64_t> kept) {
  const size_t dim = scores.size() / static_cast<size_t>(heads);
  std::vector<double> out(static_cast<size_t>(heads));
  for (size_t h = 0; h < out.size(); ++h) {
    for (const int64_t p : kept) out[h] += square(scores[h * dim + static_cast<size_t>(p)]);
    out[h] = std::sqrt(out[h]);
  }
  return out;
}

}  // namespace braid::prune
