#include "apps/loop_args.h"

#include <algorithm>
#include <iterator>

#include "apps/model_args.h"
#include "io/npy.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

constexpr const char* kExits[] = {"off", "kl", "latent", "entropy", "argmax"};  // by engine::Exit
constexpr const char* kOptions[] = {"num-steps",   "input-states", "exit",          "exit-threshold",
                                    "cache-steps", "warm-start",   "self-speculate"};

}  // namespace

void LoopArgs::declare(Cli& cli) {
  cli.option("--num-steps", steps, "of recurrent depth; 0: the model's mean");
  cli.option("--input-states", states, "before the first step: random (--seed), zero or F.npy [T, h]");
  cli.choice("--exit", exit, {std::begin(kExits), std::end(kExits)}, "no more steps once this stops changing");
  cli.option("--exit-threshold", threshold, "of the change; 0: the rule's own");
  cli.option("--cache-steps", cache_steps, "keys and values of a token, which steps share; 0: of every step");
  cli.flag("--warm-start", warm_start, "tokens begin with the state of the token before");
  cli.option("--self-speculate", draft_steps, "steps of drafts, which all steps verify; 0: none");
}

void LoopArgs::resolve(engine::RunnerOptions& options, int64_t seed) const {
  check_range("--num-steps", steps, 0, models::kLoopSteps);
  check_range("--cache-steps", cache_steps, 0, models::kLoopSteps);
  check_range("--self-speculate", draft_steps, 0, models::kLoopSteps);
  if (steps > 0 && cache_steps > steps)
    fmt::print(stderr, "note: --cache-steps {} changes nothing: there are {} steps\n", cache_steps, steps);
  if (!(threshold >= 0 && threshold <= 1e6))
    fail("--exit-threshold",
         {.what = "out of range", .got = fmt::format("{}", threshold), .expected = "a number above 0"});
  if (threshold > 0 && exit == "off") fail("--exit-threshold", {.what = "requires an exit rule", .hint = "--exit kl"});
  engine::LoopOptions& loop = options.loop;
  loop.steps = steps;
  loop.states = cache_steps;
  loop.zero = states == "zero";
  loop.seed = static_cast<uint64_t>(seed);
  loop.warm_start = warm_start;
  loop.exit = static_cast<engine::Exit>(std::ranges::find(kExits, exit) - std::begin(kExits));
  loop.threshold = threshold;
  if (file()) loop.start = io::Npy(states).floats();
}

void LoopArgs::check(const Cli& cli, const engine::Runner& runner, int64_t prompt) const {
  if (!runner.config().loop) {
    for (const std::string name : kOptions) {
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

engine::DraftOptions LoopArgs::drafts(const Cli& cli, const engine::Runner& runner, engine::DraftOptions others) const {
  if (!runner.config().loop) return others;
  if (draft_steps > 0 && others.model)
    fail("--self-speculate", {.what = "drafts in place of another model",
                              .got = "--draft-model",
                              .hint = "either option without the other"});
  if (draft_steps > 0 && others.tokens_max == 0)
    fail("--self-speculate", {.what = "drafts are switched off",
                              .got = "--draft off or --draft-max 0",
                              .hint = "either option without the other"});
  others.loop_steps = draft_steps;
  if (!runner.options().loop.depends_on_cuts()) return others;
  for (const std::string name : {"draft", "draft-model", "self-speculate"}) {
    if (others.any() && cli.given(name))
      fail("--" + name, {.what = "drafts would change the text",
                         .got = "--exit, --warm-start or --cache-steps",
                         .hint = "either option without the other"});
  }
  return {};
}

}  // namespace braid::apps
