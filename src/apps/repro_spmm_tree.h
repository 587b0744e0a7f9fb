// braid repro spmm --tune: the decision tree of sparse/tree.h, grown from measurements, and its regret.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace braid::apps {

struct TreeArgs {
  std::vector<int64_t> widths;
  std::string csv;
  int64_t rounds = 7;
  bool quick = false, json = false;
};
int repro_spmm_tree(const TreeArgs& args);
int repro_spmm_tables(const std::string& folder, bool json);  // repro_spmm_tables.cc says what is in the folder

}  // namespace braid::apps
