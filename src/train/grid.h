// The four axes of ranks that share a run (AxoNN, arXiv 2502.08145, section 4): `x` divides heads, channels, experts'
// width and the vocabulary, `y` the width of the residual stream, so that every weight of a block is divided by both;
// `z` divides the rows of a batch, the gradients that a rank reduces and the optimiser's state; `d` the rows alone.
// Consecutive ranks are x, then y, then z, then d. A graph has three axes, all of which divide the model (gnn/grid.h).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace braid::train {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
  int64_t d = 0;  // 0: as many as there are

  int64_t model() const { return x * y; }  // ranks that have the whole of it
};

// Of "x,y,z,d", or of "x,y,z" of a graph, whose ranks share a model, as those of x do. Error for anything else.
Grid parse_grid(const std::string& word);
// The sizes in "x,y,z"; empty for "x,y,z,d".
std::optional<std::array<int64_t, 3>> graph_grid(const std::string& word);

// Error unless that many ranks make up the grid.
void check_grid(const Grid& grid, int ranks);

}  // namespace braid::train
