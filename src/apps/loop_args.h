// Options for models with recurrent depth: how many steps the loop of layers runs, from which states, and when it ends
// early.
#pragma once
#include <string>

#include "apps/cli.h"
#include "engine/draft.h"
#include "engine/language_model.h"

namespace braid::apps {

struct LoopArgs {
  int64_t steps = 0, cache_steps = 0, draft_steps = 0;
  double threshold = 0;
  std::string states = "random", exit = "off";
  bool warm_start = false;

  void declare(Cli& cli);
  // Before the model is read: reads the states of a file.
  void resolve(engine::RunnerOptions& options, int64_t seed) const;
  // Error when one of the options was given for a model without a loop, or the states do not fit the prompt.
  void check(const Cli& cli, const engine::Runner& runner, int64_t prompt) const;
  // Drafts with fewer steps in addition, or none where they could change the text. Error when they were asked for.
  engine::DraftOptions drafts(const Cli& cli, const engine::Runner& runner, engine::DraftOptions others) const;

 private:
  bool file() const { return states != "random" && states != "zero"; }
};

}  // namespace braid::apps
