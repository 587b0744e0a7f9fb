// Rows of a matrix in groups of one size, so that keeping the same columns in all rows of a group loses little: the
// search of Shfl-BW (arXiv 2203.05016, section 4.1, where only its outline is published). Two steps:
//
//   1. k-means with equal groups over what each row would keep by itself, the largest scores of twice the density:
//      rows are assigned to the nearest centre that has room, those with most to lose first
//   2. exchanges: with the columns of every group fixed, two rows change places if their kept scores grow; then the
//      columns are chosen again, and so on until nothing grows. No step lowers the sum that stays
//
// from several starts, one of which is the order of the rows as they are: so never worse than no shuffling.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace braid::masks {

struct ClusterSpec {
  int64_t rows = 0, cols = 0;
  int64_t size = 0;    // of a group; of the last one what is left
  double density = 0;  // of the elements that stay
  int64_t starts = 2;  // of k-means
  uint64_t seed = 0;
  int threads = 1;
};

// The rows, group by group, ascending inside each. `scores` [rows, cols], not negative.
std::vector<int32_t> cluster_rows(const ClusterSpec& spec, std::span<const float> scores);

}  // namespace braid::masks
