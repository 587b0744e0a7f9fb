// Zeros that products of a loaded model skip: matrices which were pruned in a pattern that groups of rows share
// (masks/pattern.h: block, vector-wise, shfl-bw) have their values copied into groups (math/grouped_rows.h), which
// `linear` reads in place of the matrix. For answers: training and --exact multiply by all of it.
#pragma once
#include <cstdint>
#include <string>

#include "models/model.h"

namespace braid::models {

enum class Zeros : uint8_t {
  automatic,   // skipped where that is faster
  skipped,     // wherever groups of rows share them
  multiplied,  // nowhere
};

struct ZeroGroups {
  int64_t matrices = 0;        // that products of layers and the head read
  int64_t scanned = 0;         // of those, the ones in which a few rows have zeros
  int64_t grouped = 0;         // of those, the ones that got groups
  int64_t values = 0;          // of the grouped ones, with their zeros
  int64_t stored = 0;          // of these in groups
  int64_t bytes = 0, own = 0;  // of the groups; of the same matrices as they are
};

// One line: how many matrices skip zeros, and what that leaves of their values and bytes.
std::string summary(const ZeroGroups& z);

// The share of values up to which skipping zeros is faster for every number of tokens, as `braid repro shfl-bw`
// measures it; `x`: of activations as products read them.
double density_most(DType x, Format w);

// Reads a few rows of every matrix, and all of those that have zeros, once. Experts are multiplied whole. Groups belong
// to the model's store.
ZeroGroups skip_zeros(Model& model, Zeros zeros, DType products, int threads);

}  // namespace braid::models
