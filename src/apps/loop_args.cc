#include "apps/loop_args.h"

#include "apps/model_args.h"
#include "io/npy.h"
#include "sys/error.h"

namespace braid::apps {

void LoopArgs::declare(Cli& cli) {
  cli.option("--num-steps", steps, "of recurrent depth; 0: the model's mean");
  cli.option("--input-states", states, "before the first step: random (--seed), zero or F.npy [T, h]");
}

void LoopArgs::resolve(engine::RunnerOptions& options, int64_t seed) const {
  check_range("--num-steps", steps, 0, models::kLoopSteps);
  options.loop.steps = steps;
  options.loop.zero = states == "zero";
  options.loop.seed = static_cast<uint64_t>(seed);
  if (file()) options.loop.start = io::Npy(states).floats();
}

void LoopArgs::check(const Cli& cli, const engine::Runner& runner, int64_t prompt) const {
  if (!runner.config().loop) {
    for (const std::string name : {"num-steps", "input-states"}) {
      if (cli.given(name))
        fail("--" + name, {.what = "this model has no recurrent depth", .hint = "a model of the Huginn family"});
    }
    return;
  }
  if (!file()) return;
  const Shape shape = io::Npy(states).shape(), wanted{prompt, runner.config().hidden};
  if (shape != wanted)
    fail(printable(states), {.what = "the states do not fit the prompt and the model",
                             .got = to_string(shape),
                             .expected = to_string(wanted)});
}

}  // namespace braid::apps
