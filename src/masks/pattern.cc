#include "masks/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "masks/cluster.h"
#include "sys/check.h"

namespace braid::masks {
namespace {

void keep_largest(const Spec& spec, std::span<const float> scores, Mask& mask) {
  const std::vector<double> values(scores.begin(), scores.end());
  for (const int64_t i : largest(values, elements_of(spec.density, mask.rows, mask.cols)))
    mask.keep[static_cast<size_t>(i)] = 1;
}

void keep_two_of_four(std::span<const float> scores, Mask& mask) {
  for (size_t begin = 0; begin < scores.size(); begin += 4) {
    const std::vector<double> four(scores.begin() + static_cast<int64_t>(begin),
                                   scores.begin() + static_cast<int64_t>(begin) + 4);
    for (const int64_t i : largest(four, 2)) mask.keep[begin + static_cast<size_t>(i)] = 1;
  }
}

// Tiles of V rows and `width` columns; `row_of` has the order of the rows.
void keep_tiles(const Spec& spec, std::span<const float> scores, int64_t width, std::span<const int32_t> row_of,
                Mask& mask) {
  const int64_t across = (mask.cols + width - 1) / width, down = (mask.rows + spec.block - 1) / spec.block;
  const auto tile_of = [&](int64_t at, int64_t c) { return static_cast<size_t>(at / spec.block * across + c / width); };
  const auto size = [&](int64_t tile) {
    return std::min(spec.block, mask.rows - tile / across * spec.block) *
           std::min(width, mask.cols - tile % across * width);
  };
  std::vector<double> sums(static_cast<size_t>(down * across));
  std::vector<uint8_t> stays(sums.size());
  for (int64_t at = 0; at < mask.rows; ++at) {
    const float* row = scores.data() + row_of[static_cast<size_t>(at)] * mask.cols;
    for (int64_t c = 0; c < mask.cols; ++c) sums[tile_of(at, c)] += static_cast<double>(row[c]);
  }
  for (size_t t = 0; t < sums.size(); ++t) sums[t] /= static_cast<double>(size(static_cast<int64_t>(t)));
  for (const int64_t t : largest_units(sums, elements_of(spec.density, mask.rows, mask.cols), size))
    stays[static_cast<size_t>(t)] = 1;
  for (int64_t at = 0; at < mask.rows; ++at) {
    uint8_t* row = mask.keep.data() + row_of[static_cast<size_t>(at)] * mask.cols;
    for (int64_t c = 0; c < mask.cols; ++c) row[c] = stays[tile_of(at, c)];
  }
}

}  // namespace

const char* name_of(Pattern pattern) {
  constexpr const char* kNames[] = {"unstructured", "2:4", "block", "vector-wise", "shfl-bw"};
  return kNames[static_cast<size_t>(pattern)];
}

int64_t Mask::kept() const { return std::accumulate(keep.begin(), keep.end(), int64_t{0}); }

std::string misfit(const Spec& spec, int64_t, int64_t cols) {
  if (spec.pattern != Pattern::two_four || cols % 4 == 0) return {};
  return fmt::format("has {} columns, not a multiple of 4", cols);
}

int64_t elements_of(double density, int64_t rows, int64_t cols) {
  return std::clamp<int64_t>(std::llround(density * static_cast<double>(rows * cols)), 1, rows * cols);
}

Mask find_mask(const Spec& spec, std::span<const float> scores, int64_t rows, int64_t cols) {
  CHECK(std::ssize(scores) == rows * cols && rows * cols > 0, "{} scores of {} x {}", scores.size(), rows, cols);
  CHECK(misfit(spec, rows, cols).empty(), "{} over {} x {}", name_of(spec.pattern), rows, cols);
  Mask mask{.rows = rows, .cols = cols, .keep = std::vector<uint8_t>(scores.size()), .row_of = {}};
  std::vector<int32_t> as_they_are(static_cast<size_t>(rows));
  std::iota(as_they_are.begin(), as_they_are.end(), 0);
  switch (spec.pattern) {
    case Pattern::unstructured:
      keep_largest(spec, scores, mask);
      break;
    case Pattern::two_four:
      keep_two_of_four(scores, mask);
      break;
    case Pattern::block:
      keep_tiles(spec, scores, spec.block, as_they_are, mask);
      break;
    case Pattern::vector_wise:
      keep_tiles(spec, scores, 1, as_they_are, mask);
      break;
    case Pattern::shfl_bw:
      mask.row_of = cluster_rows({.rows = rows,
                                  .cols = cols,
                                  .size = spec.block,
                                  .density = spec.density,
                                  .seed = spec.seed,
                                  .threads = spec.threads},
                                 scores);
      keep_tiles(spec, scores, 1, mask.row_of, mask);
      break;
  }
  return mask;
}

double retained(std::span<const float> scores, const Mask& mask) {
  double kept = 0, all = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    all += static_cast<double>(scores[i]);
    if (mask.keep[i]) kept += static_cast<double>(scores[i]);
  }
  return all > 0 ? kept / all : 1;
}

std::vector<int64_t> largest(std::span<const double> values, int64_t n) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int64_t a, int64_t b) {
    const double x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (n < std::ssize(order)) std::nth_element(order.begin(), order.begin() + n, order.end(), before);
  order.resize(static_cast<size_t>(n));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int64_t> largest_units(std::span<const double> means, int64_t elements,
                                   const sys::FunctionRef<int64_t(int64_t)>& size) {
  const int64_t first = size(0), last = size(std::ssize(means) - 1);
  if (first == last) return largest(means, std::clamp<int64_t>((elements + first / 2) / first, 1, std::ssize(means)));
  std::vector<int64_t> order(means.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return means[static_cast<size_t>(a)] > means[static_cast<size_t>(b)]; });
  size_t n = 0;
  for (; n < order.size() && (n == 0 || 2 * elements >= size(order[n])); ++n) elements -= size(order[n]);
  order.resize(n);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace braid::masks
