// braid repro spmm --dtype bf16 on a CPU: sums of BF16 features row by row and over dense tiles (kernels/spmm,
// `tiles`), by how many edges of a graph would share a row of features (sparse/condense.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace braid::apps {

struct SpmmOnTiles {
  std::vector<int64_t> widths;  // those that do not divide by 32 are left out
  std::string csv, svg;         // files to write; empty: none
  int64_t rounds = 7;
  bool quick = false, json = false;
};
int repro_spmm_on_tiles(const SpmmOnTiles& o);

}  // namespace braid::apps
