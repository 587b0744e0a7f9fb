// Options of `braid run` for models with recurrent depth: how many steps the loop of layers runs, and from which
// states.
#pragma once
#include <string>

#include "apps/cli.h"
#include "engine/language_model.h"

namespace braid::apps {

struct LoopArgs {
  int64_t steps = 0;
  std::string states = "random";

  void declare(Cli& cli);
  // Before the model is read: reads the states of a file.
  void resolve(engine::RunnerOptions& options, int64_t seed) const;
  // Error when one of the options was given for a model without a loop, or the states do not fit the prompt.
  void check(const Cli& cli, const engine::Runner& runner, int64_t prompt) const;

 private:
  bool file() const { return states != "random" && states != "zero"; }
};

}  // namespace braid::apps
