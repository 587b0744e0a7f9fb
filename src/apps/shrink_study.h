// What the studies of smaller models have in common (repro_minitron.cc, repro_puzzle.cc, repro_elastic.cc): for every
// seed a small hybrid, the parent, trained on a grammar of known entropy, and short trainings of what is made of it, on
// the first rows that it read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/arms.h"
#include "apps/cli.h"
#include "data/loader.h"
#include "io/model_path.h"
#include "prune/axes.h"
#include "prune/prune.h"
#include "train/trainer.h"

namespace braid::apps {

constexpr double kShares[] = {0.75, 0.5};  // of the parent that smaller models have

struct ShrinkArgs {
  std::string dir;
  int64_t seeds = 3, steps = 600, distill = 60, threads = 0;
  int64_t samples = 64, held_out = 256;  // rows: for importance, and of the losses in tables
  bool quick = false, json = false, distils = true;
  const Cli* cli = nullptr;

  void declare(Cli& cli, bool with_distillation = true);
  void begin();  // checks, makes the folder, and from then on a signal stops trainings
  int64_t tokens(int64_t steps) const;
};

// A command whose options these are, with `dir` as the folder unless another is given.
Action setup_shrink(Cli& cli, const char* dir, int (*run)(ShrinkArgs));

// One seed of a study. What is trained lies in dir/seed-N by name. Functions that train or cut return false when a
// signal stopped them.
class ShrinkSeed {
 public:
  ShrinkSeed(const ShrinkArgs& args, int64_t seed);

  bool train_parent() { return train_parent_as("parent"); }
  // `precision`: of the recipe; `watcher` is also told the loss of held-out rows, in that precision.
  bool train_parent_as(const std::string& name, const nlohmann::ordered_json& precision = {},
                       const train::Watcher& watcher = {});
  io::ModelPath parent() const { return path("parent"); }
  io::ModelPath path(const std::string& name) const;
  double entropy() const;  // of the source

  // Training rows, for importance; the options that commands of prune/ take, all samples of them.
  data::DataSpec rows() const;
  prune::Options prune_options() const;
  // `name` by the search of braid prune over all axes, from layers to channels.
  bool prune(const std::string& target, const std::string& name);
  prune::Sizes sizes(std::string_view axes, double share) const;  // this share of each axis, in whole steps

  // `name` from the folder `init`, with the parent as the teacher.
  bool distil(const std::string& init, const std::string& name, int64_t steps);
  bool distil_nested(const std::string& init, const std::string& name, int64_t steps,
                     const std::vector<double>& budgets);
  // `name` from random weights of the shape of `like`, without a teacher.
  bool train_from_nothing(const std::string& like, const std::string& name, int64_t steps);

  double loss(const std::string& name) const;  // on held-out rows
  int64_t params(const std::string& name) const;

 private:
  bool train(nlohmann::ordered_json root, const std::string& name, int64_t steps, double lr,
             const train::Watcher& watcher = {}) const;

  const ShrinkArgs& args_;
  int64_t seed_;
  int threads_;
  std::filesystem::path dir_;
};

using SeedRun = std::function<bool(const ShrinkArgs&, int64_t, ArmStudy&)>;
// All seeds, with the files written after each. The exit code: not 0 when a signal stopped it, and files have what
// there was by then.
int over_seeds(const ShrinkArgs& args, ArmStudy& study, const SeedRun& run,
               const std::function<report::Curve(const ArmStudy&)>& picture = by_share);
// The table, or JSON; `note`: beneath the table, what is quoted and what a reader has to know.
void print_study(const ShrinkArgs& args, const ArmStudy& study, const std::string& note);

}  // namespace braid::apps
