#include "engine/draft_depth.h"

#include <algorithm>
#include <iterator>

namespace braid::engine {
namespace {

constexpr double kLeastGain = 1.03;    // less is within the noise of the clock
constexpr double kSlope = 0.15;        // of a pass, for a draft, before any was measured: worth a try
constexpr int64_t kProbePasses = 128;  // passes after which an old measurement is repeated
constexpr int64_t kBaselines = 2;      // passes without drafts before the first with them
constexpr int64_t kDraftsMax = 64;     // of a pass

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

double DepthChooser::seconds(int64_t sequences, int64_t drafts) const {
  const auto found = means_.find(sequences);
  if (found == means_.end() || !found->second.contains(0)) return 0;
  const auto& means = found->second;
  const auto above = means.lower_bound(drafts), below = above == means.begin() ? above : std::prev(above);
  if (above != means.end() && (above->first == drafts || above == means.begin())) return above->second.seconds;
  const double zero = means.at(0).seconds, low = below->second.seconds;
  const auto more = static_cast<double>(drafts - below->first);
  if (above != means.end())
    return low + more * (above->second.seconds - low) / static_cast<double>(above->first - below->first);
  const double slope = below->first > 0 ? std::max(0.0, low - zero) / static_cast<double>(below->first) : kSlope * zero;
  return low + more * slope;
}

void DepthChooser::note(int64_t sequences, int64_t drafts, double seconds) {
  auto& means = means_[sequences];
  // What was measured long ago counts little, or not at all where all of it is.
  if (drafts > 0 && without_ >= kProbePasses) std::erase_if(means, [](const auto& entry) { return entry.first > 0; });
  Mean& mean = means[drafts];
  if (drafts == 0 && with_ >= kProbePasses) mean.count = std::min<int64_t>(mean.count, 1);
  // A pass that was interrupted by other programs says little.
  if (mean.count > 0) seconds = std::min(seconds, 2 * mean.seconds);
  const double weight = std::max(0.1, 1.0 / static_cast<double>(++mean.count));
  mean.seconds += weight * (seconds - mean.seconds);
  without_ = drafts > 0 ? 0 : without_ + 1;
  with_ = drafts > 0 ? with_ + 1 : 0;
}

// Whether drafts may be tried: what a pass without them takes is known, and not from long ago.
bool DepthChooser::ready(int64_t sequences) const {
  const auto known = means_.find(sequences);
  if (known == means_.end() || !known->second.contains(0) || known->second.at(0).count < kBaselines) return false;
  return with_ < kProbePasses;
}

std::vector<int64_t> DepthChooser::choose(std::span<const Offer> offers, int64_t sequences, int64_t slots,
                                          bool always) {
  std::vector<int64_t> depths(offers.size()), best = depths;
  if (!always && !ready(sequences)) return best;
  const bool probe = without_ >= kProbePasses;  // as if nothing was known of passes with drafts
  const double zero = seconds(sequences, 0);
  double tokens = static_cast<double>(sequences), most = kLeastGain * tokens / std::max(zero, 1e-9), making = 0;
  int64_t drafts = 0;
  for (const Guess& token : by_odds(offers)) {
    if (depths[token.offer] != token.depth) continue;  // an earlier one of its sequence had no slot
    const int64_t need = token.depth == 0 ? 2 : 1;
    if (need > slots || drafts == kDraftsMax) continue;
    slots -= need;
    ++depths[token.offer];
    ++drafts;
    tokens += token.odds;
    making += probe ? 0 : offers[token.offer].token_seconds;
    const double pass = probe ? zero * (1 + kSlope * static_cast<double>(drafts)) : seconds(sequences, drafts),
                 pace = tokens / std::max(pass + making, 1e-9);
    if (!always && pace <= most) continue;
    most = pace;
    best = depths;
  }
  return best;
}

}  // namespace braid::engine
