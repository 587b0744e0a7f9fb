// braid prune --pattern: zeros in the matrices of a model, instead of a smaller one.
#pragma once
#include <cstdint>
#include <string>

#include "apps/cli.h"
#include "masks/pattern.h"
#include "prune/sparsify.h"

namespace braid::apps {

struct PatternArgs {
  std::string pattern{};
  double density = 0;  // 0: not given
  int64_t block = 32;

  void declare(Cli& cli);
  // The search that they ask for. Error for values that do not go together.
  masks::Spec spec() const;
};

// Error for --density or --block without --pattern.
void refuse_pattern_options(const PatternArgs& o);
// What the table, or with `json` one object, is of.
struct SparseRun {
  std::string model, out, score;
  bool json = false;
};
void print_sparse(const PatternArgs& o, const SparseRun& run, const prune::SparseReport& report);

}  // namespace braid::apps
