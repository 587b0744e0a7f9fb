// What the commands that make smaller models share: the data that they calibrate with, importance, and progress.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "apps/cli.h"
#include "data/loader.h"
#include "prune/prune.h"
#include "report/progress.h"

namespace braid::apps {

// Rows of `length` tokens of a path.
data::DataSpec rows_of(const std::string& path, const std::string& kind, int64_t length, uint64_t seed);

// Shows what is being done and how much of it; false, when a signal asked to stop.
class Stages {
 public:
  bool operator()(const char* name, int64_t done, int64_t total);
  void end() { progress_.reset(); }

 private:
  std::optional<report::Progress> progress_;
  std::string current_;
};

// Of prune and nest.
struct CutArgs {
  std::string data, kind, score;
  prune::Options prune;
  int64_t seed = 0, threads = 0;

  // `zeros`: where single weights, too, may be scored, which only zeros in their places need.
  void declare(Cli& cli, bool zeros = false);
  void check(const char* command, bool zeros = false);  // and completes `prune`
  data::DataSpec spec() const { return rows_of(data, kind, prune.length, prune.seed); }
};

// The exit code of a command that a signal stopped. Prints that `out` is complete if only losses were not measured yet.
int stopped(const std::string& out);

// "ffn 192, layers 9": sizes that differ from the whole's, which 0 stands for, too; `none` if all are equal.
std::string sizes_text(const prune::Sizes& sizes, const prune::Sizes& full, const char* none);
// Of all axes that the model has.
nlohmann::ordered_json sizes_json(const prune::Sizes& sizes, const prune::Sizes& full);

}  // namespace braid::apps
