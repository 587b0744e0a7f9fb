#include "train/link_split.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/philox.h"
#include "graph/draws.h"

namespace braid::train {
namespace {

constexpr uint32_t kHeldOut = 0x6c696e6b, kNegatives = 0x6e656761;  // "link", "nega"

bool has(const graph::Csr& csr, int32_t source, int32_t target) {
  const auto begin = csr.col.begin() + csr.rowptr[static_cast<size_t>(target)],
             end = csr.col.begin() + csr.rowptr[static_cast<size_t>(target) + 1];
  return std::binary_search(begin, end, source);
}

}  // namespace

bool joined(const graph::Csr& csr, const graph::Edge& edge, bool bipartite) {
  return has(csr, edge.source, edge.target) || (!bipartite && has(csr, edge.target, edge.source));
}

LinkSplit split_links(const graph::Csr& all, bool bipartite, double held_out, uint64_t seed) {
  LinkSplit split{.messages = {.rows = all.rows, .cols = all.cols}, .bipartite = bipartite};
  if (!bipartite) split.messages.loop = all.loop;
  for (int64_t i = 0; i < all.rows; ++i) {
    for (int64_t e = all.rowptr[static_cast<size_t>(i)]; e < all.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const int32_t source = all.col[static_cast<size_t>(e)], target = static_cast<int32_t>(i);
      // The same for both directions.
      const int64_t low = bipartite ? source : std::min(source, target),
                    high = bipartite ? target : std::max(source, target);
      const auto r = philox({seed, kHeldOut}, static_cast<uint64_t>(low) << 32 | static_cast<uint64_t>(high));
      const bool out = static_cast<double>(uniform(r[0])) < held_out;
      if (!out) split.messages.col.push_back(source);
      if (!out && !all.weight.empty()) split.messages.weight.push_back(all.weight_of(e));
      const bool parallel = e > all.rowptr[static_cast<size_t>(i)] && all.col[static_cast<size_t>(e) - 1] == source;
      const bool second = !bipartite && source > target && has(all, target, source);  // its reverse is the one
      if (!parallel && !second) (out ? split.held_out : split.trained).push_back({source, target});
    }
    split.messages.rowptr.push_back(split.messages.edges());
  }
  return split;
}

std::vector<graph::Edge> draw_negatives(const graph::Csr& csr, std::span<const graph::Edge> positives, bool bipartite,
                                        uint64_t seed, uint64_t step) {
  constexpr uint32_t kTries = 100;
  std::vector<graph::Edge> pairs;
  for (size_t i = 0; i < positives.size(); ++i) {
    for (uint32_t attempt = 0; attempt < kTries; ++attempt) {
      const auto r = philox({seed, kNegatives}, step << 32 | i, attempt);
      const graph::Edge pair{bipartite ? positives[i].source : static_cast<int32_t>(graph::below(r[0], csr.cols)),
                             static_cast<int32_t>(graph::below(r[1], csr.rows))};
      if ((!bipartite && pair.source == pair.target) || joined(csr, pair, bipartite)) continue;
      pairs.push_back(pair);
      break;
    }
  }
  return pairs;
}

std::optional<double> auc_of(std::span<const float> positives, std::span<const float> negatives) {
  if (positives.empty() || negatives.empty()) return std::nullopt;
  std::vector<float> sorted(negatives.begin(), negatives.end());
  std::sort(sorted.begin(), sorted.end());
  double won = 0;
  for (const float score : positives) {
    const auto [low, high] = std::equal_range(sorted.begin(), sorted.end(), score);
    won += static_cast<double>(low - sorted.begin()) + 0.5 * static_cast<double>(high - low);
  }
  return won / (static_cast<double>(positives.size()) * static_cast<double>(negatives.size()));
}

double hits_at(int64_t k, std::span<const float> positives, std::span<const float> negatives) {
  if (positives.empty()) return 0;
  if (std::ssize(negatives) < k) return 1;
  std::vector<float> best(negatives.begin(), negatives.end());
  std::nth_element(best.begin(), best.begin() + (k - 1), best.end(), std::greater<>());
  const float bar = best[static_cast<size_t>(k) - 1];
  const auto hits = std::count_if(positives.begin(), positives.end(), [bar](float score) { return score > bar; });
  return static_cast<double>(hits) / static_cast<double>(positives.size());
}

}  // namespace braid::train
