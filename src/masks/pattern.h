// Which weights of a matrix stay when it is pruned to a density, by scores (magnitudes, or others): the largest sum of
// scores that a pattern allows.
//
//   unstructured  any elements
//   2:4           of four consecutive columns of a row, two
//   block         tiles of V rows and V columns
//   vector-wise   columns of V consecutive rows
//   shfl-bw       columns of V rows that need not be neighbours: rows are divided into groups of V (cluster.h), and
//                 inside a group the same columns stay in every row (Shfl-BW, arXiv 2203.05016)
//
// At one number of elements each allows what those below it in this order allow: unstructured, shfl-bw, vector-wise,
// block. Groups of a matrix may keep different numbers of columns. Matrices are [rows = outputs, cols = inputs]; the
// last group, and the last blocks, are smaller where V does not divide.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sys/function_ref.h"

namespace braid::masks {

enum class Pattern : uint8_t { unstructured, two_four, block, vector_wise, shfl_bw };
inline constexpr Pattern kPatterns[] = {Pattern::unstructured, Pattern::two_four, Pattern::block, Pattern::vector_wise,
                                        Pattern::shfl_bw};
const char* name_of(Pattern pattern);

struct Spec {
  Pattern pattern = Pattern::unstructured;
  double density = 0.5;  // of elements that stay, above 0 and up to 1
  int64_t block = 32;    // V
  uint64_t seed = 0;     // of the clustering
  int threads = 1;
};

struct Mask {
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> keep{};    // [rows, cols], 1: stays
  std::vector<int32_t> row_of{};  // shfl-bw: the rows in the order of their groups, V each; else empty

  int64_t kept() const;
};

// Why the pattern cannot be laid over a matrix; empty: it can.
std::string misfit(const Spec& spec, int64_t rows, int64_t cols);

// `scores` [rows, cols] are finite and not negative; the matrix fits. Whole units (elements, vectors, blocks) stay, by
// their mean scores, as many as come nearest to the density, at least one. Equal scores: those of lower rows and
// columns first.
Mask find_mask(const Spec& spec, std::span<const float> scores, int64_t rows, int64_t cols);

// The sum of the scores that stay over the sum of all; 1 if all are 0.
double retained(std::span<const float> scores, const Mask& mask);

// Indices of the `n` largest values, ascending; of equal ones the first.
std::vector<int64_t> largest(std::span<const double> values, int64_t n);
// Of units with `size(i)` elements each and these mean scores: those that stay when about `elements` do, ascending.
std::vector<int64_t> largest_units(std::span<const double> means, int64_t elements,
                                   const sys::FunctionRef<int64_t(int64_t)>& size);
// Elements of a matrix that a density leaves.
int64_t elements_of(double density, int64_t rows, int64_t cols);

}  // namespace braid::masks
