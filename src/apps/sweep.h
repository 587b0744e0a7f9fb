// A sweep: one recipe at every shape of a grid, each shape trained once at a constant rate, its trunk. From points of
// the trunk decays branch off, each a checkpoint of its own as the schedule wsd would have made it, so that one run
// gives losses at several numbers of tokens, all annealed (Haegele et al. 2024, https://arxiv.org/abs/2405.18392).
//   DIR/sweep.json               what the rows were made with
//   DIR/w64-d4/trunk-00000800    the run up to a branch
//   DIR/w64-d4/steps-00001000    the branch, with row.json once its loss is known
// What is there is not made again: a sweep that was stopped goes on, and one with a larger grid or more steps adds
// rows.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apps/sweep_rows.h"
#include "apps/sweep_shape.h"
#include "core/ctx.h"
#include "train/recipe.h"

namespace braid::apps {

struct SweepSpec {
  train::Recipe recipe;  // its steps are those of the longest branch
  std::vector<SweepShape> shapes{};
  int64_t points = 4;   // branches of a run: the last at `steps`, each one before at half as many
  double decay = 0.2;   // share of a branch's steps in which the rate falls
  double lr_power = 0;  // the rate is the recipe's times (width of its config / width) to this power
  std::filesystem::path dir{};
};

// A branch, and what it will be without its loss.
struct SweepBranch {
  int64_t begin = 0;  // step at which the decay begins
  SweepRow row{};
  std::filesystem::path folder(const std::filesystem::path& dir) const;
};

using Branches = std::vector<SweepBranch>;  // of a shape, by steps
inline double flops_per_step(const Branches& of) {
  return of.back().row.flops / static_cast<double>(of.back().row.steps);
}

// The branches of all shapes, those of the cheapest first. Errors of the recipe, a shape or the points are thrown here,
// before training.
std::vector<Branches> grid_of(const SweepSpec& spec);

// A line for each word of the recipe that a sweep sets itself.
std::vector<std::string> overruled_words(const train::Recipe& recipe);

// The recipe at a shape, whose steps, decay and out are those of a trunk or a branch.
train::Recipe shaped(const SweepSpec& spec, const SweepShape& shape);

// Checks that `dir` holds no sweep of another recipe, or writes down what this one is.
void open_sweep(const SweepSpec& spec);

// Whether the branch has its row.
bool stands(const SweepSpec& spec, const SweepBranch& branch);

// Steps that are to be trained for the branches of a shape that do not stand.
int64_t steps_left(const SweepSpec& spec, const Branches& branches);

// Trains all branches that do not stand, behind a bar, and keeps the CSV of all rows in `table`; `told` of each new
// one. A run whose loss is not finite is left out with a warning. The exit code: 2 after such a run, 128 + N after a
// signal.
int train_grid(const SweepSpec& spec, const std::vector<Branches>& grid, int64_t threads,
               const std::filesystem::path& table, const std::function<void(const SweepRow&)>& told);

// Seconds of a step of the shape here: the shortest of a few, in a temporary folder.
double step_seconds(const SweepSpec& spec, const SweepShape& shape, Ctx& ctx);

}  // namespace braid::apps
