// Quantile balancing (router.h): margins in bins, and the bias that they ask for. Thresholds of tokens come first, then
// each expert fills its own row of bins, so that any number of threads gives the same counts.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "core/tensor.h"
#include "kernels/router/router_rows.h"

namespace braid {
namespace {

constexpr double kWidth = 2 * kMarginMost / static_cast<double>(kMarginBins);

// The bin (lower, upper] of a margin; NaN, as of two infinities, counts as not chosen.
int64_t bin_of(double margin) {
  const double at = std::ceil((margin + kMarginMost) / kWidth) - 1;
  return at > 0 ? std::min(static_cast<int64_t>(std::min(at, 1e9)), kMarginBins - 1) : 0;
}

// The margin that `wanted` of the tokens in the bins exceed, as if those of a bin were spread evenly over it.
double quantile(const int32_t* bins, double wanted) {
  double above = 0;
  for (int64_t i = kMarginBins - 1; i >= 0; --i) {
    const double upper = static_cast<double>(i + 1) * kWidth - kMarginMost;
    if (above + bins[i] >= wanted && bins[i] > 0) return upper - kWidth * (wanted - above) / bins[i];
    above += bins[i];
  }
  return -kMarginMost;
}

}  // namespace

void count_router_margins(Ctx& ctx, const RouterMargins& op) {
  const int64_t tokens = op.logits.dim(0), count = op.logits.dim(1), k = op.top_k;
  CHECK(op.bins.shape == (Shape{count, kMarginBins}) && op.bias.shape == Shape{count} && k >= 1 && k <= count,
        "router margins: bins {} and bias {} of E = {}, K = {}", to_string(op.bins.shape), to_string(op.bias.shape),
        count, k);
  const Tensor above(ctx.arena, DType::f32, {tokens, count}),    // margins
      scratch(ctx.arena, DType::f32, {ctx.threads, 4 * count});  // of a thread: scores and their order, FP64
  if (ctx.dry || k == count) return;
  sys::parallel(static_cast<int>(std::clamp<int64_t>(tokens / 16, 1, ctx.threads)), [&](int thread, int team) {
    auto* scores = reinterpret_cast<double*>(scratch.mut().as<float>(thread));
    double* sorted = scores + count;
    for (int64_t t = tokens * thread / team; t < tokens * (thread + 1) / team; ++t) {
      router_scores(op.logits.as<float>(t), count, op.kind, scores);
      for (int64_t e = 0; e < count; ++e) {
        scores[e] += static_cast<double>(op.bias.as<float>()[e]);
        if (std::isnan(scores[e])) scores[e] = -std::numeric_limits<double>::infinity();
      }
      std::copy_n(scores, count, sorted);
      std::nth_element(sorted, sorted + k, sorted + count, std::greater<>());
      for (int64_t e = 0; e < count; ++e) above.mut().as<float>(t)[e] = static_cast<float>(scores[e] - sorted[k]);
    }
  });
  sys::parallel_for(ctx.threads, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      for (int64_t t = 0; t < tokens; ++t)
        ++op.bins.as<int32_t>(e)[bin_of(static_cast<double>(above.view().as<float>(t)[e]))];
    }
  });
}

void balance_router_bias(const View& bins, int64_t top_k, float share, const MutView& bias) {
  const int64_t count = bias.dim(0);
  CHECK(bins.shape == (Shape{count, kMarginBins}), "router bias {} and bins {}", to_string(bias.shape),
        to_string(bins.shape));
  const int32_t* first = bins.as<int32_t>(0);
  const double tokens = std::accumulate(first, first + kMarginBins, 0.0);
  if (tokens == 0) return;
  const double wanted = tokens * static_cast<double>(top_k) / static_cast<double>(count);
  double mean = 0;
  std::vector<double> moved(static_cast<size_t>(count));
  for (int64_t e = 0; e < count; ++e) {
    double& b = moved[static_cast<size_t>(e)];
    b = static_cast<double>(bias.as<float>()[e]) - static_cast<double>(share) * quantile(bins.as<int32_t>(e), wanted);
    mean += b / static_cast<double>(count);
  }
  for (int64_t e = 0; e < count; ++e) bias.as<float>()[e] = static_cast<float>(moved[static_cast<size_t>(e)] - mean);
}

}  // namespace braid
