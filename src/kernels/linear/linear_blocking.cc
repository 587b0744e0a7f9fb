#include "kernels/linear/linear_blocking.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "math/pieces.h"
#include "sys/roofs.h"

namespace braid {
namespace {

using packed::Blocking;
using packed::Way;

constexpr int64_t kTaskBytes = int64_t{1280} << 10;  // of a depth block of w in panels, unless the grain needs more
constexpr int64_t kColsMax = 384, kRowsLeast = 128;  // of a default task
constexpr int64_t kGradCols = 768;                   // of dw in one task, at most

// On tiles, whose operands arrive more slowly than they are multiplied, larger tasks gain 1.1 times on several products
// (bench/results/alcop-cpu.csv: 2 MiB of L2).
struct DefaultSizes {
  static constexpr int64_t kBalancedRows = 256;  // of a task of dw, more only where a thread has two tasks or more
  int64_t sum_rows = 512;                        // of a task whose sums wait for the next depth block
  int64_t grad_rows = kBalancedRows;             // of dw in one task, at most
  int64_t tasks_a_thread = 4;                    // so that threads end at about the same time
  explicit DefaultSizes(const PackedProduct& p) {
    if (p.c == packed::Class::bf16_tile) sum_rows = 1024, grad_rows = 1024, tasks_a_thread = p.threads == 1 ? 1 : 4;
  }
};

int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
double real(int64_t n) { return static_cast<double>(n); }

// The grid that reads least: packing w costs about three times as much as reading panels of x.
Blocking default_of_tokens(const PackedProduct& p) {
  const DefaultSizes sizes(p);
  const int64_t tokens = std::clamp<int64_t>(p.tokens, 1, kPackedTokens), block = packed::block_depth(p.depth());
  const int64_t rows_max = block < p.depth() ? sizes.sum_rows : kPackedTokens, grain = packed::kColGrain;
  const int64_t value_bytes = packed::kernel_of(p.c).value_bytes;
  const int64_t cols_max = std::clamp(kTaskBytes / (block * value_bytes) / grain * grain, grain, kColsMax);
  Blocking best{.depth = packed::kDepthMax};
  double best_cost = 0;
  for (int64_t parts = 1; best.rows == 0 || tokens / parts >= kRowsLeast; parts *= 2) {
    const int64_t rows = round_up(ceil_div(tokens, parts), packed::kRowGrain);
    const int64_t row_tasks = ceil_div(tokens, rows),
                  want = std::max<int64_t>(1, sizes.tasks_a_thread * p.threads / row_tasks);
    const int64_t cols = std::clamp(round_up(ceil_div(p.cols(), want), grain), grain, cols_max);
    const int64_t col_tasks = ceil_div(p.cols(), cols);
    const double idle = sizes.tasks_a_thread > 1 && col_tasks * row_tasks < 2 * p.threads ? 1e12 : 0;
    const double cost = real(tokens * col_tasks) + 3.0 * real(p.cols() * row_tasks) + idle;
    if (rows <= rows_max && (best.rows == 0 || cost < best_cost)) best.rows = rows, best.cols = cols, best_cost = cost;
  }
  return best;
}

// Tasks of dw of at most `grad_rows` by kGradCols: those with the least cost per thread, where reading a value of x and
// packing one of dy cost as much as this many products.
Blocking default_of_weight(const PackedProduct& p) {
  constexpr double kReadX = 200, kPackDy = 600;
  Blocking best{.depth = packed::kernel_of(p.c).chain};
  double best_cost = 0;
  for (int64_t r = DefaultSizes(p).grad_rows; r >= 32; r /= 2) {
    for (int64_t c = kGradCols; c >= kGradCols / 4; c /= 2) {
      const int64_t tasks = ceil_div(p.rows(), r) * ceil_div(p.cols(), c), rounds = ceil_div(tasks, p.threads);
      if (r > DefaultSizes::kBalancedRows && p.threads > 1 && tasks < 2 * p.threads) continue;
      const double m = real(std::min(r, p.rows())), n = real(std::min(c, p.cols()));
      const double cost = real(rounds) * (m * n + kReadX * n + kPackDy * m);
      if (best.rows == 0 || cost < best_cost) best.rows = r, best.cols = c, best_cost = cost;
    }
  }
  return best;
}

// Rows of y that one pass over the tasks computes: tokens are packed kPackedTokens at a time.
int64_t pass_rows(const PackedProduct& p) {
  return p.way == Way::weight ? p.rows() : std::min(p.rows(), kPackedTokens);
}

// The same loops with the least sizes.
Blocking canonical(const PackedProduct& p, Blocking b) {
  b.rows = std::min(b.rows, round_up(std::max<int64_t>(pass_rows(p), 1), packed::kRowGrain));
  b.cols = std::min(b.cols, round_up(std::max<int64_t>(p.cols(), 1), packed::kColGrain));
  const int64_t depth = std::max<int64_t>(p.depth(), 1);
  b.depth = p.way == Way::weight ? std::min(b.depth / kPieceTokens * kPieceTokens, round_up(depth, kPieceTokens))
                                 : packed::block_depth(depth, b.depth);
  return b;
}

// Depth blocks, and their depths in panels.
struct Blocks {
  int64_t count = 0, padded = 0, longest = 0;
  Blocks(const packed::Kernel& kernel, const PackedProduct& p, const Blocking& b) {
    const int64_t block = canonical(p, b).depth;
    for (int64_t k = 0; k < p.depth(); k += block, ++count)
      padded += round_up(std::min(block, p.depth() - k), kernel.step);
    longest = round_up(std::min(block, p.depth()), kernel.step);
  }
};

// What a read of `bytes` that are used again after `set` other bytes is served by.
double rate_of(double set, const PackedLimits& l) {
  return set <= 0.75 * l.l2_bytes ? l.l2_gbs : set <= 0.5 * l.l3_bytes ? l.l3_gbs : l.memory_gbs;
}

}  // namespace

Blocking default_blocking(const PackedProduct& p) {
  return canonical(p, p.way == Way::weight ? default_of_weight(p) : default_of_tokens(p));
}

Blocking blocking_of(const PackedProduct& p) {
  const Blocking* chosen = packed::blockings().empty() ? nullptr : packed::chosen_blocking(p.key());
  return chosen ? *chosen : default_blocking(p);
}

std::vector<Blocking> blocking_space(const PackedProduct& p) {
  std::vector<Blocking> space;
  for (const int64_t depth : {256, 512, 768, 1536}) {
    for (const int64_t cols : {96, 192, 384, 768}) {
      for (const int64_t rows : {64, 128, 256, 512, 1024}) {
        for (const int64_t ahead : {0, 1024}) {
          const Blocking b = canonical(p, {.rows = rows, .cols = cols, .depth = depth, .ahead = ahead});
          if (std::ranges::find(space, b) == space.end()) space.push_back(b);
        }
      }
    }
  }
  return space;
}

PackedLimits packed_limits(packed::Class c, int threads) {
  const sys::Roofs& roofs = sys::roofs(threads);
  const sys::CacheRates& rates = sys::cache_rates();
  const sys::Caches caches = sys::caches();
  const bool bf16 = c == packed::Class::bf16_dot || c == packed::Class::bf16_tile;
  return {.gflops = (bf16 ? roofs.bf16_gflops : roofs.fp32_gflops) / roofs.threads,
          .l1_bytes = real(caches.l1_bytes),
          .l2_bytes = real(caches.l2_bytes),
          .l3_bytes = real(caches.l3_bytes),
          .l1_gbs = rates.l1_gbs,
          .l2_gbs = rates.l2_gbs,
          .l3_gbs = rates.l3_gbs,
          .memory_gbs = std::min(rates.memory_gbs, roofs.read_gbs / roofs.threads)};
}

PackedTraffic packed_traffic(const packed::Kernel& kernel, const PackedProduct& p, const Blocking& b) {
  const Blocks blocks(kernel, p, b);
  const double v = real(kernel.value_bytes), depth = real(p.depth()), padded = real(blocks.padded);
  const double col_tasks = real(ceil_div(p.cols(), b.cols)), b_panels = real(ceil_div(p.cols(), kernel.cols));
  const double b_values = b_panels * real(kernel.cols) * padded;
  PackedTraffic t;
  for (int64_t first = 0; first < p.rows(); first += pass_rows(p)) {
    const int64_t rows = std::min(pass_rows(p), p.rows() - first);
    const double row_tasks = real(ceil_div(rows, b.rows)), a_panels = real(ceil_div(rows, kernel.rows));
    const double a_values = a_panels * real(kernel.rows) * padded;
    const double a_read = real(rows) * depth * real(p.a_bytes), b_read = real(p.cols()) * depth * real(p.b_bytes);
    const bool share_a = p.way != Way::weight;
    t.shared_read += share_a ? a_read : b_read;
    t.shared_written += v * (share_a ? a_values : b_values);
    t.own_read += share_a ? row_tasks * b_read : col_tasks * a_read;
    t.own_written += v * (share_a ? row_tasks * b_values : col_tasks * a_values);
    const double tiles = a_panels * b_panels, tile_rows = real(kernel.rows), tile_cols = real(kernel.cols);
    t.flops += 2 * tiles * tile_rows * tile_cols * padded;
    t.tiles += tiles * real(blocks.count);
    t.registers += v * tiles * (tile_rows + tile_cols) * padded;
    t.panels_a += v * col_tasks * a_values;
    t.panels_b += v * a_panels * b_values;
    // dw is added to; y begins at zero.
    const double passes = p.way == Way::weight ? 2 * real(blocks.count) : 2 * real(blocks.count) - 1;
    t.sums += 4 * passes * tiles * tile_rows * tile_cols;
  }
  return t;
}

double packed_seconds(const packed::Kernel& kernel, const PackedProduct& p, const Blocking& b, const PackedLimits& l) {
  const PackedTraffic t = packed_traffic(kernel, p, b);
  const Blocks blocks(kernel, p, b);
  const Blocking least = canonical(p, b);
  const double v = real(kernel.value_bytes), deep = v * real(blocks.longest), depth = v * real(p.depth());
  const double panel_a = deep * real(kernel.rows), part_b = deep * real(least.cols), part_a = deep * real(least.rows);
  const double part_y = 4 * real(least.rows * least.cols);
  const bool share_a = p.way != Way::weight;
  const double whole = depth * real(share_a ? pass_rows(p) : p.cols());  // of what is shared, in panels
  const double tasks_a = real(ceil_div(p.rows(), b.rows)), tasks_b = real(ceil_div(p.cols(), b.cols));

  const double l1 = t.registers / l.l1_gbs;
  // Panels of b stream past each panel of a. A panel of a that does not fit in L1 with them is read again for each.
  double l2 = part_b + panel_a <= 0.75 * l.l1_bytes ? 0 : t.panels_b / rate_of(part_b + 2 * panel_a, l);
  if (panel_a > l.l1_bytes) l2 += t.tiles * panel_a / rate_of(part_a, l);
  // What is shared comes from where the packed operand fits, once for every task across.
  const double far = share_a ? t.panels_a / rate_of(whole, l) : t.shared_written * tasks_a / rate_of(whole, l);
  if (!share_a) l2 += t.panels_a / rate_of(part_a, l);
  const double sums = t.sums / rate_of(part_y + (share_a ? part_b : part_a + part_b), l);
  const std::array terms = {t.flops / l.gflops + t.tiles * l.tile_ns, l1, l2, far, sums};
  const double longest_term = *std::ranges::max_element(terms);
  const double product = longest_term + l.exposed * (std::accumulate(terms.begin(), terms.end(), 0.0) - longest_term);

  const double again = share_a ? tasks_a : tasks_b;  // an operand is packed so often: from memory, then from L3
  const auto packing = [&](double read, double written, double times, double to) {
    const double source = read / times * (1 / l.memory_gbs + (times - 1) / l.l3_gbs);
    return std::max({read / l.pack_gbs, source, written / to});
  };
  const double shared = packing(t.shared_read, t.shared_written, 1, rate_of(whole, l));
  const double own = packing(t.own_read, t.own_written, again, rate_of(share_a ? part_b : part_a, l));
  const double tasks = tasks_a * tasks_b, threads = real(p.threads);
  const double longest = std::ceil(tasks / threads) / tasks;  // of all tasks, those of the busiest thread
  return 1e-9 * (shared / threads + (own + product) * longest);
}

std::vector<int> ranked_blockings(const PackedProduct& p, std::span<const Blocking> space, const PackedLimits& limits) {
  const packed::Kernel kernel = packed::kernel_of(p.c);
  std::vector<double> seconds;
  seconds.reserve(space.size());
  for (const Blocking& b : space) seconds.push_back(packed_seconds(kernel, p, b, limits));
  std::vector<int> order(space.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int i) { return seconds[static_cast<size_t>(i)]; });
  return order;
}

}  // namespace braid
