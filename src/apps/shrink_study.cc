#include "apps/shrink_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/cut_args.h"
#include "apps/model_args.h"
#include "apps/study.h"
#include "io/json.h"
#include "io/ordered_json.h"
#include "models/count.h"
#include "models/load.h"
#include "prune/measure.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kShrinkLength = 64, kShrinkBatch = 16;
constexpr double kParentRate = 4e-3, kDistillRate = 2e-3;
constexpr data::GeneratorSpec kGrammar{.states = 16, .depth = 3, .rules = 3};
// Four heads of Mamba in each of four groups of B and C.
constexpr const char* kParentConfig = R"({"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h",
  "dtype": "bfloat16", "hybrid_override_pattern": "M-M*-M-", "hidden_size": 64, "vocab_size": 17,
  "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "mamba_num_heads": 16,
  "mamba_head_dim": 8, "ssm_state_size": 16, "n_groups": 4, "conv_kernel": 4, "chunk_size": 32,
  "intermediate_size": 192, "mlp_hidden_act": "relu2", "max_position_embeddings": 1024, "pad_token_id": 0,
  "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": false, "layer_norm_epsilon": 1e-5})";

data::DataSpec grammar_of(int64_t seed, bool held_out) {
  return {.kind = "pcfg",
          .batch = 1,
          .length = kShrinkLength,
          .seed = static_cast<uint64_t>(seed),
          .held_out = held_out,
          .generator = kGrammar};
}

}  // namespace

void ShrinkArgs::declare(Cli& cli_of, bool with_distillation) {
  cli = &cli_of;
  distils = with_distillation;
  cli_of.option("--dir FOLDER", dir, "a new one, for models, CSV and SVG");
  cli_of.option("--seeds", seeds, "parents, each with its own grammar, weights and rows");
  cli_of.option("--steps", steps, distils ? "of a parent's training, 1,024 tokens each" : "of each, 1,024 tokens each");
  if (distils) cli_of.option("--distill-steps", distill, "of the training of what is made of it");
  cli_of.option("-t,--threads", threads, "0: one per core");
  cli_of.flag("--quick", quick, "two seeds, a few steps: what it runs, not what it shows");
  cli_of.flag("--json", json, "print one JSON object");
}

void ShrinkArgs::begin() {
  check_range("--seeds", seeds, 1, kSeedsMost);
  check_range("--steps", steps, 2, 1000000);
  check_range("--distill-steps", distill, 2, 1000000);
  check_range("--threads", threads, 0, 1024);
  if (quick) {
    refuse_unread("--quick", {{"--seeds", cli->given("seeds")}, {"--steps", cli->given("steps")}});
    refuse_unread("--quick", {{"--distill-steps", distils && cli->given("distill-steps")}});
    seeds = 2;
    steps = 8;
    distill = 2;
    samples = 16;
    held_out = 64;
  }
  begin_study(dir);
}

Action setup_shrink(Cli& cli, const char* dir, int (*run)(ShrinkArgs)) {
  auto o = std::make_shared<ShrinkArgs>();
  o->dir = dir;
  o->declare(cli);
  return [o, run] { return run(*o); };
}

int64_t ShrinkArgs::tokens(int64_t of_steps) const { return of_steps * kShrinkBatch * kShrinkLength; }

ShrinkSeed::ShrinkSeed(const ShrinkArgs& args, int64_t seed)
    : args_(args),
      seed_(seed),
      threads_(args.threads > 0 ? static_cast<int>(args.threads) : sys::default_threads()),
      dir_(fs::absolute(args.dir) / fmt::format("seed-{}", seed)) {
  fs::create_directory(dir_);
}

io::ModelPath ShrinkSeed::path(const std::string& name) const {
  std::string file = name;
  std::erase(file, ',');
  std::replace(file.begin(), file.end(), ' ', '-');
  return {.name = name, .folder = dir_ / file, .weights = dir_ / file};
}

double ShrinkSeed::entropy() const {
  return *data::open(rows(), dir_, ordered_json::parse(kParentConfig)["vocab_size"].get<int64_t>()).entropy_floor();
}

data::DataSpec ShrinkSeed::rows() const { return grammar_of(seed_, false); }

prune::Options ShrinkSeed::prune_options() const {
  return {.floors = {.width = 0.25, .depth = 0.5},
          .samples = args_.samples,
          .length = kShrinkLength,
          .quick = args_.samples,
          .seed = static_cast<uint64_t>(seed_),
          .threads = threads_};
}

prune::Sizes ShrinkSeed::sizes(std::string_view axes, double share) const {
  const models::Config config = models::load_config(parent());
  const auto ranges = prune::axes_of(config, {.width = 0, .depth = 0});
  prune::Sizes sizes;
  for (const prune::Axis axis : prune::parse_axes(std::string(axes), ranges)) {
    const prune::AxisRange& range = ranges[static_cast<size_t>(axis)];
    const int64_t units = range.full / range.step;
    const auto steps = static_cast<int64_t>(std::floor(share * static_cast<double>(units)));
    sizes[axis] = std::max(range.least, steps * range.step);
  }
  return sizes;
}

bool ShrinkSeed::train(ordered_json root, const std::string& name, int64_t steps, double lr,
                       const train::Watcher& watcher) const {
  root["out"] = path(name).folder.string();
  root["dtype"] = "bf16";
  root["steps"] = steps;
  root["batch"] = kShrinkBatch;
  root["length"] = kShrinkLength;
  root["seed"] = seed_;
  root["data"] = {{"kind", "pcfg"}, {"states", kGrammar.states}, {"depth", kGrammar.depth}, {"rules", kGrammar.rules}};
  root["optimizer"] = {{"kind", "muon"}, {"lr", lr}};
  root["schedule"] = {{"kind", "wsd"}, {"warmup", std::max<int64_t>(1, steps / 20)}, {"decay", steps / 3}};
  const std::string label = fmt::format("seed {}: {}", seed_, name);
  return train_for_study(train::read_recipe(io::Json::parse(root.dump(), "braid repro")), args_.threads, label,
                         watcher);
}

bool ShrinkSeed::train_parent_as(const std::string& name, const ordered_json& precision,
                                 const train::Watcher& watcher) {
  ordered_json root = {{"config", ordered_json::parse(kParentConfig)},
                       {"eval", {{"every", args_.steps}, {"batches", args_.held_out / kShrinkBatch}}}};
  if (!precision.is_null()) root["precision"] = precision;
  return train(std::move(root), name, args_.steps, kParentRate, watcher);
}

bool ShrinkSeed::prune(const std::string& target, const std::string& name) {
  prune::Options options = prune_options();
  options.target = prune::parse_target(target);
  Stages stages;
  return prune::prune_model(parent(), rows(), path(name).folder, options, std::ref(stages)).whole;
}

bool ShrinkSeed::distil(const std::string& init, const std::string& name, int64_t steps) {
  return train({{"init", path(init).folder.string()}, {"distill", {{"teacher", parent().folder.string()}}}}, name,
               steps, kDistillRate);
}

bool ShrinkSeed::distil_nested(const std::string& init, const std::string& name, int64_t steps,
                               const std::vector<double>& budgets) {
  return train({{"init", path(init).folder.string()},
                {"distill", {{"teacher", parent().folder.string()}}},
                {"nest", {{"budgets", budgets}}}},
               name, steps, kDistillRate);
}

bool ShrinkSeed::train_from_nothing(const std::string& like, const std::string& name, int64_t steps) {
  return train({{"config", (path(like).folder / "config.json").string()}}, name, steps, kParentRate);
}

double ShrinkSeed::loss(const std::string& name) const {
  const io::ModelPath model = path(name);
  const models::Config config = models::load_config(model);
  const auto held_out = prune::read_rows(grammar_of(seed_, true), model, config, args_.held_out);
  return prune::mean_loss(*models::load_model(model), held_out, threads_, [](int64_t) { return true; });
}

int64_t ShrinkSeed::params(const std::string& name) const {
  return models::count_parameters(models::load_config(path(name))).total;
}

int over_seeds(const ShrinkArgs& args, ArmStudy& study, const SeedRun& run,
               const std::function<report::Curve(const ArmStudy&)>& picture) {
  for (int64_t seed = 0; seed < args.seeds; ++seed) {
    report::status(fmt::format("seed {} of {}: a parent, and what is made of it", seed + 1, args.seeds));
    const bool finished = run(args, seed, study);
    write_arms(study, picture(study), args.dir);
    if (finished) continue;
    fmt::print(stderr, "stopped in seed {}; what was finished is in {}\n", seed, printable(args.dir));
    return 128 + sys::caught_signal();
  }
  return 0;
}

void print_study(const ShrinkArgs& args, const ArmStudy& study, const std::string& note) {
  if (args.json) {
    fmt::print("{}\n", io::dumped(arms_json(study), 1));
    return;
  }
  fmt::print("{}\nHeld-out loss in nats per token, entropy {}; means over {} with 95% intervals.\n{}\n",
             arms_table(study), text_of(spread_of(study.entropy)), report::counted(args.seeds, "seed"), note);
  fmt::print("written to {}: {}.csv and {}.svg\n", printable(args.dir), study.name, study.name);
}

}  // namespace braid::apps
