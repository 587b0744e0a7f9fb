// Patterns against what enumeration finds on small matrices, their order at one density, and the cases in which nothing
// needs to be searched.
#include "masks/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/philox.h"

namespace braid::masks {
namespace {

std::vector<float> random_scores(int64_t n, uint64_t seed) {
  std::vector<float> scores;
  for (int64_t i = 0; i < n; ++i) scores.push_back(uniform(philox({.seed = seed}, static_cast<uint64_t>(i))[0]));
  return scores;
}

double kept_sum(const std::vector<float>& scores, const Mask& mask) {
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) sum += mask.keep[i] ? static_cast<double>(scores[i]) : 0;
  return sum;
}

// What the `stays` best columns of the groups `row_of` keep, by sorting all of them.
double kept_by(const std::vector<float>& scores, int64_t cols, int64_t size, const std::vector<int32_t>& row_of,
               int64_t stays) {
  std::vector<double> sums;
  for (size_t first = 0; first < row_of.size(); first += static_cast<size_t>(size)) {
    for (int64_t c = 0; c < cols; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < size; ++i)
        sum += static_cast<double>(scores[static_cast<size_t>(row_of[first + static_cast<size_t>(i)] * cols + c)]);
      sums.push_back(sum);
    }
  }
  std::sort(sums.rbegin(), sums.rend());
  return std::accumulate(sums.begin(), sums.begin() + stays, 0.0);
}

// The best of all divisions of the rows into groups: every permutation.
double best_by_enumeration(const std::vector<float>& scores, int64_t rows, int64_t cols, int64_t size, int64_t stays) {
  std::vector<int32_t> row_of(static_cast<size_t>(rows));
  std::iota(row_of.begin(), row_of.end(), 0);
  double best = 0;
  do {
    bool ordered = true;  // one permutation of each division: ascending in groups, groups by their first row
    for (size_t i = 1; i < row_of.size(); ++i) {
      const bool inside = i % static_cast<size_t>(size) != 0;
      ordered = ordered && row_of[i] > row_of[inside ? i - 1 : i - static_cast<size_t>(size)];
    }
    if (ordered) best = std::max(best, kept_by(scores, cols, size, row_of, stays));
  } while (std::next_permutation(row_of.begin(), row_of.end()));
  return best;
}

TEST(Pattern, UnstructuredKeepsTheLargestAndOfEqualOnesTheFirst) {
  const std::vector<float> scores = {3, 1, 2, 2, 2, 0};
  EXPECT_EQ(find_mask({.density = 0.5}, scores, 2, 3).keep, (std::vector<uint8_t>{1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(find_mask({.density = 0.01}, scores, 2, 3).kept(), 1);  // never nothing
  EXPECT_EQ(find_mask({.density = 1}, scores, 2, 3).kept(), 6);
}

TEST(Pattern, TwoOfFourInEveryRow) {
  const std::vector<float> scores = random_scores(6 * 8, 1);
  const Mask mask = find_mask({.pattern = Pattern::two_four}, scores, 6, 8);
  for (size_t begin = 0; begin < scores.size(); begin += 4) {
    double best = 0, kept = 0;
    int stays = 0;
    for (size_t a = 0; a < 4; ++a) {
      stays += mask.keep[begin + a];
      kept += mask.keep[begin + a] ? static_cast<double>(scores[begin + a]) : 0;
      for (size_t b = a + 1; b < 4; ++b)
        best = std::max(best, static_cast<double>(scores[begin + a]) + static_cast<double>(scores[begin + b]));
    }
    EXPECT_EQ(stays, 2);
    EXPECT_DOUBLE_EQ(kept, best);
  }
}

TEST(Pattern, BlocksAndVectorsStayWhole) {
  const std::vector<float> scores = random_scores(int64_t{8} * 12, 2);
  const Mask block = find_mask({.pattern = Pattern::block, .density = 0.5, .block = 4}, scores, 8, 12);
  const Mask vectors = find_mask({.pattern = Pattern::vector_wise, .density = 0.5, .block = 4}, scores, 8, 12);
  EXPECT_EQ(block.kept(), 48);
  EXPECT_EQ(vectors.kept(), 48);
  for (size_t r = 0; r < 8; ++r) {
    for (size_t c = 0; c < 12; ++c) {
      EXPECT_EQ(block.keep[r * 12 + c], block.keep[r / 4 * 4 * 12 + c / 4 * 4]);
      EXPECT_EQ(vectors.keep[r * 12 + c], vectors.keep[r / 4 * 4 * 12 + c]);
    }
  }
}

TEST(Pattern, ShuffledRowsShareTheColumnsOfTheirGroup) {
  const std::vector<float> scores = random_scores(int64_t{12} * 10, 3);
  const Mask mask = find_mask({.pattern = Pattern::shfl_bw, .density = 0.3, .block = 3}, scores, 12, 10);
  std::vector<int32_t> sorted = mask.row_of;
  std::sort(sorted.begin(), sorted.end());
  for (int32_t r = 0; r < 12; ++r) ASSERT_EQ(sorted[static_cast<size_t>(r)], r);
  EXPECT_EQ(mask.kept(), 36);
  for (size_t at = 0; at < 12; ++at) {
    const auto row = static_cast<size_t>(mask.row_of[at]), first = static_cast<size_t>(mask.row_of[at / 3 * 3]);
    for (size_t c = 0; c < 10; ++c) EXPECT_EQ(mask.keep[row * 10 + c], mask.keep[first * 10 + c]);
  }
}

TEST(Pattern, ShuffledIsNearlyTheBestOfAllDivisions) {
  double found = 0, best = 0, as_they_are = 0;
  const int64_t rows = 8, cols = 6, size = 2, stays = 8;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const std::vector<float> scores = random_scores(rows * cols, 100 + seed);
    const Spec spec{.pattern = Pattern::shfl_bw, .density = 8.0 / 24, .block = size, .seed = seed};
    const Mask mask = find_mask(spec, scores, rows, cols);
    const double kept = kept_sum(scores, mask), most = best_by_enumeration(scores, rows, cols, size, stays);
    EXPECT_LE(kept, most + 1e-9);
    EXPECT_NEAR(kept, kept_by(scores, cols, size, mask.row_of, stays), 1e-6);
    found += kept;
    best += most;
    Spec plain = spec;
    plain.pattern = Pattern::vector_wise;
    as_they_are += kept_sum(scores, find_mask(plain, scores, rows, cols));
  }
  EXPECT_GT(found, 0.97 * best);
  EXPECT_GT(found - as_they_are, 0.7 * (best - as_they_are));  // most of what shuffling can gain
}

// Rows of hidden clusters in any order: the search finds them all, and keeps what no shuffling could exceed.
TEST(Pattern, ShuffledFindsHiddenClusters) {
  const int64_t rows = 64, cols = 96, size = 8, groups = rows / size;
  std::vector<float> scores = random_scores(rows * cols, 4);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t hidden = r * 5 % groups;
    for (int64_t c = 0; c < cols; ++c)
      scores[static_cast<size_t>(r * cols + c)] += c % groups == hidden || (c + 3) % groups == hidden ? 10 : 0;
  }
  const Spec spec{.pattern = Pattern::shfl_bw, .density = 0.25, .block = size};
  const Mask mask = find_mask(spec, scores, rows, cols);
  for (int64_t at = 0; at < rows; ++at) {
    EXPECT_EQ(mask.row_of[static_cast<size_t>(at)] * 5 % groups,
              mask.row_of[static_cast<size_t>(at / size * size)] * 5 % groups);
  }
  EXPECT_EQ(mask.keep, find_mask({.density = 0.25}, scores, rows, cols).keep);
}

TEST(Pattern, RetainedIsOrderedAsTheAllowedSetsAre) {
  for (const double density : {0.125, 0.25, 0.5, 0.75}) {
    const std::vector<float> scores = random_scores(int64_t{32} * 64, 5);
    std::vector<double> shares;
    for (const Pattern p : {Pattern::unstructured, Pattern::shfl_bw, Pattern::vector_wise, Pattern::block}) {
      const Mask mask = find_mask({.pattern = p, .density = density, .block = 8}, scores, 32, 64);
      EXPECT_EQ(mask.kept(), static_cast<int64_t>(density * 32 * 64)) << name_of(p);
      shares.push_back(retained(scores, mask));
    }
    EXPECT_GT(shares[0], shares[1]);
    EXPECT_GT(shares[1], shares[2]);
    EXPECT_GT(shares[2], shares[3]);
    EXPECT_GT(shares[3], density);
  }
}

TEST(Pattern, GroupsOfOneRowAreUnstructuredAndOneGroupIsVectorWise) {
  const std::vector<float> scores = random_scores(int64_t{6} * 9, 6);
  const auto keep = [&](Pattern p, int64_t block) {
    return find_mask({.pattern = p, .density = 1.0 / 3, .block = block}, scores, 6, 9).keep;
  };
  EXPECT_EQ(keep(Pattern::shfl_bw, 1), keep(Pattern::unstructured, 1));
  EXPECT_EQ(keep(Pattern::shfl_bw, 6), keep(Pattern::vector_wise, 6));
}

// Groups found by several threads are those of one.
TEST(Pattern, ThreadsChangeNoGroup) {
  const std::vector<float> scores = random_scores(int64_t{48} * 40, 7);
  Spec spec{.pattern = Pattern::shfl_bw, .density = 0.2, .block = 8, .seed = 3};
  const Mask one = find_mask(spec, scores, 48, 40);
  spec.threads = 3;
  const Mask three = find_mask(spec, scores, 48, 40);
  EXPECT_EQ(one.row_of, three.row_of);
  EXPECT_EQ(one.keep, three.keep);
}

// Groups and blocks at the edges are smaller: all rows are in groups, whole units stay, and about the density does.
TEST(Pattern, EdgesOfMatricesThatBlocksDoNotDivide) {
  for (const auto& [rows, cols, block] : {std::array<int64_t, 3>{13, 10, 4}, {3, 7, 8}, {33, 5, 16}, {9, 9, 3}}) {
    const std::vector<float> scores = random_scores(rows * cols, 8);
    for (const Pattern p : {Pattern::shfl_bw, Pattern::vector_wise, Pattern::block}) {
      const Mask mask = find_mask({.pattern = p, .density = 0.4, .block = block}, scores, rows, cols);
      const int64_t unit = p == Pattern::block ? block * block : block;
      EXPECT_LE(std::abs(static_cast<double>(mask.kept()) - 0.4 * static_cast<double>(rows * cols)),
                static_cast<double>(unit));
      const auto kept = [&](int64_t at, int64_t c) {
        const int64_t r = p == Pattern::shfl_bw ? mask.row_of[static_cast<size_t>(at)] : at;
        return mask.keep[static_cast<size_t>(r * mask.cols + c)];
      };
      for (int64_t at = 0; at < mask.rows; ++at) {
        for (int64_t c = 0; c < mask.cols; ++c)
          EXPECT_EQ(kept(at, c), kept(at / block * block, p == Pattern::block ? c / block * block : c));
      }
    }
  }
}

TEST(Pattern, ZerosAloneAndMisfits) {
  const std::vector<float> zeros(32, 0.0f);
  for (const Pattern p : kPatterns) {
    const Mask mask = find_mask({.pattern = p, .density = 0.5, .block = 4}, zeros, 4, 8);
    EXPECT_EQ(mask.kept(), 16) << name_of(p);
    EXPECT_EQ(retained(zeros, mask), 1);
  }
  EXPECT_EQ(misfit({.pattern = Pattern::two_four}, 3, 6), "has 6 columns, not a multiple of 4");
  EXPECT_EQ(misfit({.pattern = Pattern::shfl_bw, .block = 32}, 48, 6), "");
  EXPECT_EQ(misfit({}, 3, 5), "");
}

// The corner, one element, is not behind the full tile for having few.
TEST(Pattern, RaggedTilesCompeteByTheirMeans) {
  const std::vector<float> scores = {1, 1, 0, 1, 1, 0, 0, 0, 2};
  const Mask mask = find_mask({.pattern = Pattern::block, .density = 1.0 / 9, .block = 2}, scores, 3, 3);
  EXPECT_EQ(mask.keep, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 1}));
}

}  // namespace
}  // namespace braid::masks
