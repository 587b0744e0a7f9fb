// What a sweep will train, before it does: recipes of its shapes, branches with their costs, what it refuses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "apps/recipe_paths.h"
#include "apps/sweep.h"
#include "data/loader.h"
#include "io/atomic_file.h"
#include "models/count.h"
#include "models/presets.h"
#include "sys/error.h"
#include "train/manifest.h"
#include "train/origin.h"
#include "train/recipe_paths.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;

io::Json config_of_sweep(const train::Recipe& recipe) {
  if (!recipe.config)
    fail("law sweep", {.what = "the recipe starts from a trained model, which has one size",
                       .expected = "config, of which every shape is made"});
  return recipe.config->is_string() ? models::find_config(recipe.config->as_string()).json : *recipe.config;
}

std::vector<int64_t> steps_of(const SweepSpec& spec) {
  std::vector<int64_t> steps;
  for (int64_t i = spec.points - 1; i >= 0; --i) steps.push_back(spec.recipe.steps >> i);
  if (steps.front() < 2 || static_cast<int64_t>(std::floor(static_cast<double>(steps.front()) * (1 - spec.decay))) <
                               std::max<int64_t>(1, spec.recipe.schedule.warmup))
    fail("law sweep", {.what = "the first branch would begin within the warm-up",
                       .got = fmt::format("{} steps, of which {} warm up", steps.front(), spec.recipe.schedule.warmup),
                       .hint = "more steps, fewer --points or less schedule.warmup"});
  return steps;
}

void check_sweep(const train::Recipe& r) {
  const auto refuse = [](const char* word, const char* what, const char* hint) {
    fail(word, {.what = what, .hint = hint});
  };
  if (r.objective != "language") refuse("objective", "a sweep trains language models", "objective = \"language\"");
  if (r.batch == 0 || r.length == 0)
    refuse("law sweep", "the recipe leaves the size of a batch to its data", "batch and length");
  if (r.schedule.kind == "cosine")
    refuse("schedule.kind", "cosine has no constant part from which decays could branch off", "wsd");
  if (r.lora.rank > 0) refuse("lora.rank", "a sweep trains whole models", "leaving it out");
  if (data::has_answers(r.data) || !r.rollout.environments.empty() || !r.distill.teacher.empty())
    refuse("law sweep", "the losses of tasks after pretraining follow no law of size and tokens", "a plain recipe");
}

Branches branches_of(const SweepSpec& spec, const SweepShape& shape) {
  Branches branches;
  train::Recipe recipe = shaped(spec, shape);
  recipe.out = spec.dir.string();
  const models::Config config = with_paths_of(recipe, [&] { return train::config_of(recipe); });
  train::check_trainable(config);
  const models::Parameters n = models::count_parameters(config);
  const double per_token = train::flops_per_token(config, recipe.length);
  for (const int64_t steps : steps_of(spec)) {
    const auto tokens = static_cast<double>(steps * recipe.batch * recipe.length);
    const auto begin = static_cast<int64_t>(std::floor(static_cast<double>(steps) * (1 - spec.decay)));
    branches.push_back({.begin = begin,
                        .row = {.shape = shape,
                                .steps = steps,
                                .params = static_cast<double>(n.total),
                                .active = static_cast<double>(n.active),
                                .embedding = static_cast<double>(n.embedding),
                                .tokens = tokens,
                                .flops = tokens * per_token,
                                .lr = recipe.optimizer.lr}});
  }
  return branches;
}

}  // namespace

fs::path SweepBranch::folder(const fs::path& dir) const {
  return dir / row.shape.name() / fmt::format("steps-{:08}", row.steps);
}

train::Recipe shaped(const SweepSpec& spec, const SweepShape& shape) {
  train::Recipe r = spec.recipe;
  const io::Json config = config_of_sweep(r);
  r.config = resized(config, shape);
  r.optimizer.lr *= std::pow(static_cast<double>(width_of(config)) / static_cast<double>(shape.width), spec.lr_power);
  r.schedule.kind = "wsd";
  r.schedule.decay = 0;
  r.checkpoint.keep = 1;
  r.checkpoint.keep_every = r.checkpoint.merge = 0;
  r.eval.every = 0;
  r.log.every = 1;  // what the watcher is told of
  return r;
}

std::vector<std::string> overruled_words(const train::Recipe& recipe) {
  std::vector<std::string> lines;
  for (const auto& [word, value] : train::changed_words(recipe)) {
    constexpr std::string_view kOverruled[] = {
        "schedule.decay", "eval.every", "log.every", "checkpoint.keep", "checkpoint.keep_every", "checkpoint.merge"};
    if (std::ranges::find(kOverruled, word) != std::end(kOverruled))
      lines.push_back(fmt::format("{} = {} does nothing in a sweep, which sets it for its trunks and branches{}", word,
                                  value, word == "schedule.decay" ? ": --decay" : ""));
  }
  return lines;
}

std::vector<Branches> grid_of(const SweepSpec& spec) {
  check_sweep(spec.recipe);
  std::vector<Branches> grid;
  for (const SweepShape& shape : spec.shapes) grid.push_back(branches_of(spec, shape));
  std::stable_sort(grid.begin(), grid.end(),
                   [](const Branches& a, const Branches& b) { return a.back().row.flops < b.back().row.flops; });
  return grid;
}

void open_sweep(const SweepSpec& spec) {
  train::Recipe recipe = spec.recipe;
  recipe.out.clear();
  recipe.schedule.kind = "wsd";
  const auto text = [](const std::string& s) { return nlohmann::json(s).dump(); };
  const train::Facts facts =
      train::manifest_of(recipe,
                         {{"--decay", fmt::format("{}", spec.decay)},
                          {"--lr-power", fmt::format("{}", spec.lr_power)},
                          {"eval.batches", std::to_string(recipe.eval.batches)},
                          {"eval.data", text(train::with_paths_from(recipe, spec.dir).eval.data)}},
                         spec.dir);
  const fs::path file = spec.dir / "sweep.json";
  if (!fs::exists(file)) {
    io::check_parent(spec.dir);
    io::check_new_folder(spec.dir);
    fs::create_directory(spec.dir);
    return io::write_text_file(file, train::manifest_text(facts));
  }
  const std::vector<std::string> others = train::differences(io::Json::read(file), facts);
  if (others.empty()) return;
  fail(printable(spec.dir.string()),
       {.what = fmt::format("holds a sweep of another recipe: {}", others.front()), .hint = "another --dir"});
}

}  // namespace braid::apps
