// All layouts of a number of ranks that the trainer's rules allow, and the best of them for a machine.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "layout/cost.h"

namespace braid::layout {

struct Space {
  bool grid = true;       // x,y,z,d, too
  int64_t zero_most = 3;  // of parallel.zero; 0 excludes z of a grid, too
  bool auto_recompute = true;
  Recompute::Kind recompute = Recompute::Kind::none;          // otherwise
  std::function<void(int64_t done, int64_t all)> progress{};  // called now and then
  int64_t micro = 0;  // rows of a part; 0: the fastest of the powers of two that fit
};

// Where ranks share nothing that a word divides (zero of one rank, sp without tp), or a grid is another name of one
// with words, it is left out. Of virtual stages 1, 2, 3, 4, 6, 8 and 12.
std::vector<train::ParallelRecipe> layouts(const Model& model, const Task& task, const Space& space);

struct Choice {
  Layout layout{};
  Cost cost{};
  bool fits = false;
};

struct Found {
  std::vector<Choice> fitting{};  // fastest first, one of each layout
  Choice nearest{};               // where none fits: the one that needs least
  int64_t legal = 0;              // layouts
};
// Each layout with the parts and the recomputation that are fastest of those that fit. Error when no layout is legal.
Found find_layouts(const Model& model, const Machine& machine, const Task& task, const Space& space);

// The parts, and the recomputation, that a layout is tried with.
Choice best_of(const Model& model, const Machine& machine, const Task& task, const Space& space,
               const train::ParallelRecipe& parallel);

}  // namespace braid::layout
