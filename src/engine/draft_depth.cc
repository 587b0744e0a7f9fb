#include "engine/draft_depth.h"

#include <algorithm>
#include <iterator>

namespace braid::engine {
namespace {

constexpr double kLeastGain = 1.08;  // less is lost to the noise of the clock and to what is tried in vain
constexpr double kSlope = 0.15;      // of a pass, for a draft, before any was measured: worth a try
constexpr int64_t kOldPasses = 128;  // after which a measurement is forgotten, and made again
constexpr int64_t kBaselines = 2;    // passes without drafts before the first with them
constexpr int64_t kDraftsMax = 64;   // of a pass

struct Guess {
  double odds;
  size_t offer;
  int64_t depth;
};

// All drafts on offer, from the most likely one; those of a sequence stay in their order.
std::vector<Guess> by_odds(std::span<const Offer> offers) {
  std::vector<Guess> tokens;
  for (size_t i = 0; i < offers.size(); ++i) {
    for (size_t depth = 0; depth < offers[i].odds.size(); ++depth)
      tokens.push_back({offers[i].odds[depth], i, static_cast<int64_t>(depth)});
  }
  std::ranges::stable_sort(tokens, std::greater{}, &Guess::odds);
  return tokens;
}

}  // namespace

// Between what was measured on a line; beyond it on one that is less steep than up to there, so that more drafts are
// tried where they may pay.
double DepthChooser::seconds(int64_t sequences, int64_t drafts) const {
  const auto found = batches_.find(sequences);
  if (found == batches_.end() || !found->second.means.contains(0)) return 0;
  const auto& means = found->second.means;
  const auto above = means.lower_bound(drafts);
  if (above != means.end() && above->first == drafts) return above->second.seconds;
  const auto& [below, mean] = *std::prev(above);  // there is one: without drafts
  const double low = mean.seconds, zero = means.at(0).seconds, more = static_cast<double>(drafts - below);
  if (above != means.end())
    return low + more * (above->second.seconds - low) / static_cast<double>(above->first - below);
  const double slope = below > 0 ? std::max(0.0, low - zero) / static_cast<double>(2 * below) : kSlope * zero;
  return low + more * slope;
}

void DepthChooser::note(int64_t sequences, int64_t drafts, double seconds) {
  Batch& batch = batches_[sequences];
  ++batch.passes;
  const auto old = [&](const Mean& mean) { return batch.passes - mean.pass > kOldPasses; };
  std::erase_if(batch.means, [&](const auto& entry) { return entry.first > 0 && old(entry.second); });
  Mean& mean = batch.means[drafts];
  if (old(mean)) mean.count = std::min<int64_t>(mean.count, 1);
  // A pass that was interrupted by other programs says little.
  if (mean.count > 0) seconds = std::min(seconds, 1.5 * mean.seconds);
  mean.seconds += std::max(0.1, 1.0 / static_cast<double>(++mean.count)) * (seconds - mean.seconds);
  mean.pass = batch.passes;
}

// Whether drafts may be tried: what a pass without them takes is known, and not from long ago.
bool DepthChooser::ready(int64_t sequences) const {
  const auto known = batches_.find(sequences);
  if (known == batches_.end() || !known->second.means.contains(0)) return false;
  const Mean& zero = known->second.means.at(0);
  return zero.count >= kBaselines && known->second.passes - zero.pass <= kOldPasses;
}

std::vector<int64_t> DepthChooser::choose(std::span<const Offer> offers, int64_t sequences, int64_t slots,
                                          bool always) {
  std::vector<int64_t> depths(offers.size()), best = depths;
  if (!always && !ready(sequences)) return best;
  const double zero = seconds(sequences, 0);
  double tokens = static_cast<double>(sequences), most = kLeastGain * tokens / std::max(zero, 1e-9), making = 0;
  int64_t drafts = 0;
  for (const Guess& token : by_odds(offers)) {
    if (depths[token.offer] != token.depth) continue;  // an earlier one of its sequence had no slot
    const int64_t need = token.depth == 0 ? 1 : 0;
    if (need > slots || drafts == kDraftsMax) continue;
    slots -= need;
    ++depths[token.offer];
    ++drafts;
    tokens += token.odds;
    making += offers[token.offer].token_seconds;
    const double pace = tokens / std::max(seconds(sequences, drafts) + making, 1e-9);
    if (!always && pace <= most) continue;
    most = pace;
    best = depths;
  }
  return best;
}

}  // namespace braid::engine
