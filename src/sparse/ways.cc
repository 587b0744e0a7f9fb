#include "sparse/ways.h"

namespace braid::sparse {
namespace {

constexpr double kMiB = 1 << 20;

}  // namespace

std::span<const Way> ways() {
  // Distances that paid on Zen 3 (kernels/spmm/README.md); whether they do here a plan measures.
  static constexpr Way kTable[kWays] = {
      {.name = "sr", .tuning = {.ahead = 0}},
      {.name = "sr_ahead", .tuning = {.ahead = 16}},
      {.name = "sr_past", .tuning = {.ahead = 0, .past_caches = true}},
      {.name = "sr_ahead_past", .tuning = {.ahead = 16, .past_caches = true}},
      {.name = "sell", .tuning = {.ahead = 0}, .packed = true},
      {.name = "sell_ahead", .tuning = {.ahead = 32}, .packed = true},
  };
  return kTable;
}

Features features_of(const graph::RowStats& stats, int64_t cols, int64_t width, int64_t element_bytes) {
  const auto w = static_cast<double>(width), bytes = static_cast<double>(element_bytes);
  return {.mean = stats.mean,
          .spread = stats.spread,
          .width = w,
          .x_mib = static_cast<double>(cols) * w * bytes / kMiB,
          .y_mib = static_cast<double>(stats.rows) * w * 4 / kMiB};
}

bool possible(const Way& way, int64_t width) { return !way.packed || width <= kSpmmPackWidest; }

}  // namespace braid::sparse
