#include "train/origin.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <variant>

#include "core/step_plan.h"
#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "models/config_file.h"
#include "models/count.h"
#include "models/family.h"
#include "models/inventory.h"
#include "models/load.h"
#include "models/presets.h"
#include "models/random_weights.h"
#include "models/save.h"
#include "nn/precision.h"
#include "sys/error.h"
#include "train/balance.h"
#include "train/checkpoint.h"
#include "train/nest.h"
#include "train/recipe_paths.h"
#include "train/rollout.h"
#include "train/task.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

io::Json config_json(const Recipe& recipe) {
  const io::Json& config = *recipe.config;
  return config.is_string() ? models::find_config(config.as_string()).json : config;
}

// `exact` promises the results of passes that only read a model.
[[noreturn]] void refuse_exact(const char* word, const char* hint) {
  fail("exact", {.what = fmt::format("cannot be combined with {}, which no other pass has", word), .hint = hint});
}

void check(const Recipe& recipe) {
  if (recipe.init.empty() == !recipe.config) {
    fail("recipe", {.what = recipe.config ? "both init and config" : "neither init nor config",
                    .expected = "init = a model folder, or config = a config.json for random weights"});
  }
  if (recipe.out.empty()) fail("recipe", {.what = "has no out", .expected = "a folder for checkpoints and logs"});
  if (!nn::is_low_precision(recipe.precision) && recipe.precision == "bf16" && recipe.dtype != "bf16")
    fail("precision.recipe",
         {.what = "is not the type that products read", .got = "bf16", .expected = "dtype = \"bf16\""});
  const auto inexact = [&](bool asked, const char* word) {
    if (recipe.exact && asked) refuse_exact(word, "leaving one out");
  };
  inexact(nn::is_low_precision(recipe.precision), "precision.recipe");
  inexact(recipe.lora.dropout > 0, "lora.dropout");
  parse_recompute(recipe.recompute);
  check_offload(recipe);
  const LoraRecipe& lora = recipe.lora;
  const bool adapts = !lora.targets.empty() || !lora.target_parameters.empty();
  if (adapts != (lora.rank > 0)) {
    fail("lora", {.what = adapts ? "has no rank" : "names nothing to adapt",
                  .expected = "rank, and targets or target_parameters"});
  }
  const auto whole = [&](bool asked, const char* word) {
    if (adapts && asked)
      fail("lora", {.what = fmt::format("cannot be combined with {}", word), .hint = "leaving one out"});
  };
  whole(nn::is_low_precision(recipe.precision), "precision.recipe");
  whole(recipe.loss.router_bias_rate > 0, "loss.router_bias_rate");
  whole(recipe.loss.quantile > 0, "loss.quantile");
  check_balance(recipe);
  check_merge(recipe);
  check_nest(recipe);
  check_task(recipe);
}

constexpr const char* kMadeOf = "made_of.json";

// What determines the files of out/init.
std::string made_of(const Recipe& recipe) {
  const nlohmann::ordered_json j = {{"seed", recipe.seed},
                                    {"tokenizer", with_paths_from(recipe, recipe.out).tokenizer},
                                    {"config", config_json(recipe).raw()}};
  return j.dump(1) + "\n";
}

// Only a run with checkpoints reuses what it wrote. One that was stopped before its first one starts again, and a
// tokenizer may have changed under its name by then.
bool is_origin_of(const Recipe& recipe, const fs::path& folder) {
  if (!io::is_complete(folder) || list_checkpoints(recipe.out).empty() || !fs::exists(folder / kMadeOf)) return false;
  return io::Json::read(folder / kMadeOf).raw() == nlohmann::json::parse(made_of(recipe));
}

struct BlockFlops {  // besides products with parameters; forward, per token
  double length;

  double operator()(const nn::AttentionSpec& a) const {
    return 2 * length * static_cast<double>(a.heads * a.head_dim);  // scores and values over half the sequence
  }
  double operator()(const nn::Mamba2Spec& m) const {
    const auto q = static_cast<double>(m.chunk), n = static_cast<double>(m.state), d = static_cast<double>(m.inner());
    return q * n * static_cast<double>(m.groups) + 2 * q * d + 4 * d * n;
  }
  template <class Other>
  double operator()(const Other&) const {
    return 0;
  }
};

// Checkpoints copy files of the folder that their run started from.
io::ModelPath find_folder(const char* key, const std::string& name) {
  io::ModelPath path = io::find_model(name);
  if (path.is_gguf())
    fail(key, {.what = "training does not start from a GGUF file",
               .got = printable(path.name),
               .hint = "the model's folder"});
  return path;
}

}  // namespace

double flops_per_token(const models::Config& config, int64_t length) {
  return flops_per_token(config, models::count_parameters(config), length);
}

double flops_per_token(const models::Config& config, const models::Parameters& n, int64_t length) {
  double flops = 6 * static_cast<double>(n.active - n.embedding);
  // Layers of a loop run forward in all its steps, backward in the last ones.
  const auto passes = [&](size_t layer) {
    return static_cast<double>(config.runs_of(layer) +
                               2 * (config.runs_of(layer) == 1 ? 1 : config.loop->backward_steps));
  };
  for (size_t i = 0; i < config.layers.size(); ++i) {
    for (const models::PartSpec& part : config.layers[i].parts)
      flops += passes(i) * std::visit(BlockFlops{static_cast<double>(length)}, part.block);
  }
  if (!config.loop) return flops;
  for (const models::TensorSpec& tensor : models::inventory(config)) {
    const bool repeated = tensor.layer >= 0 && config.runs_of(static_cast<size_t>(tensor.layer)) > 1;
    if (repeated) flops += 2 * (passes(config.loop->begin) - 3) * static_cast<double>(tensor.shape.count());
  }
  return flops;
}

models::Config config_of(const Recipe& recipe) {
  check(recipe);
  models::Config config =
      recipe.config ? models::read_config(config_json(recipe)) : models::load_config(find_folder("init", recipe.init));
  check_balance(recipe, config);
  if (config.mtp) config.mtp->steps = recipe.loss.mtp_steps;
  if (recipe.loss.mtp_scale > 0 && !config.mtp)
    fail("loss.mtp_scale", {.what = "the model has no multi-token prediction block", .hint = "leaving it out"});
  if (recipe.dropout) {
    const auto rate = static_cast<float>(*recipe.dropout);
    config.dropout = {.embedding = rate, .residual = rate};
  }
  if (recipe.exact && (config.dropout.embedding > 0 || config.dropout.residual > 0))
    refuse_exact("dropout", "dropout = 0");
  return config;
}

void check_trainable(const models::Config& config) {
  if (config.dropout.attention == 0) return;
  fail("dropout",
       {.what = "dropout of attention probabilities is not supported",
        .got = fmt::format("attn_pdrop or attention_dropout = {:g} (GPT-2's is 0.1 where config.json has none)",
                           config.dropout.attention),
        .expected = "0",
        .hint = "dropout = 0, or a rate for embedding and residual branches alone"});
}

namespace {

// Of rates that fall, or would.
void note_decay(const Recipe& recipe, std::vector<std::string>& lines) {
  const ScheduleRecipe& s = recipe.schedule;
  if (s.kind == "constant") return;
  if (s.min_lr > recipe.optimizer.lr && (s.kind != "wsd" || s.decay > 0))
    lines.push_back(fmt::format("schedule.min_lr = {} is above optimizer.lr = {}: the rate rises to it", s.min_lr,
                                recipe.optimizer.lr));
  if (s.kind != "wsd") return;
  if (s.decay == 0) lines.emplace_back("schedule.kind = wsd without schedule.decay stays at optimizer.lr");
  if (s.decay > recipe.steps) {
    lines.push_back(fmt::format("schedule.decay = {} is more than steps = {}: the rate begins below optimizer.lr",
                                s.decay, recipe.steps));
  } else if (s.decay > 0 && s.decay + s.warmup > recipe.steps) {
    lines.push_back(fmt::format(
        "schedule.warmup = {} and schedule.decay = {} are more than steps = {}: the rate drops after the warm-up",
        s.warmup, s.decay, recipe.steps));
  }
}

}  // namespace

std::vector<std::string> idle_words(const Recipe& recipe) {
  std::vector<std::string> lines;
  const ScheduleRecipe& schedule = recipe.schedule;
  if (schedule.warmup > recipe.steps) {
    lines.push_back(fmt::format("schedule.warmup = {} is more than steps = {}: optimizer.lr is not reached",
                                schedule.warmup, recipe.steps));
  }
  if (schedule.kind == "constant" && (schedule.decay > 0 || schedule.min_lr > 0))
    lines.emplace_back("schedule.decay and schedule.min_lr do nothing: schedule.kind is constant");
  note_decay(recipe, lines);
  if (recipe.checkpoint.merge == 1) lines.emplace_back("checkpoint.merge = 1 does nothing: a mean is of two or more");
  if (recipe.eval.every == 0 && (!recipe.eval.data.empty() || recipe.eval.batches != EvalRecipe{}.batches))
    lines.emplace_back("eval.data and eval.batches do nothing without eval.every");
  if (recipe.optimizer.lr == 0) lines.emplace_back("optimizer.lr = 0 trains nothing");
  const GraphRecipe &g = recipe.graph, plain;
  for (const auto& [word, model, set] : {std::tuple("graph.heads", "gat", g.heads > plain.heads),
                                         {"graph.kernels", "monet", g.kernels > plain.kernels},
                                         {"graph.attention_dropout", "gat", g.attention_dropout > 0},
                                         {"graph.eps", "gin", g.eps != plain.eps}}) {
    if (set && recipe.objective == "graph" && g.model != model)
      lines.push_back(fmt::format("{} does nothing in {}, only in {}", word, g.model, model));
  }
  const ParallelRecipe& p = recipe.parallel;
  if (p.node_ranks > 0 && p.node_limit == 0 && p.dispatcher != "node")
    lines.emplace_back("parallel.node_ranks does nothing without parallel.dispatcher = node or parallel.node_limit");
  if (recipe.rollout.think_share < 1 && !recipe.rollout.think)
    lines.emplace_back("rollout.think_share does nothing without rollout.think");
  if (recipe.loss.mtp_steps > 1 && recipe.loss.mtp_scale == 0)
    lines.emplace_back("loss.mtp_steps does nothing without loss.mtp_scale");
  return lines;
}

namespace {

// Of tables whose part of training is off: every word that differs from its default.
void note_tables(const Recipe& recipe, const models::Config& config, std::vector<std::string>& lines) {
  const std::tuple<const char*, bool, const char*> tables[] = {
      {"graph.", true, "objective = \"graph\""},
      {"distill.", recipe.distill.teacher.empty(), "distill.teacher"},
      {"preference.", recipe.preference.kind == "none", "preference.kind"},
      {"policy.", recipe.policy.advantage == "none", "policy.advantage"},
      {"loop.", !config.loop, "a model of recurrent depth"},
      {"lora.", recipe.lora.rank == 0, "lora.rank"},
      {"spike.", recipe.spike.z == 0 && recipe.spike.norm_z == 0, "spike.z or spike.norm_z"},
      {"loss.goldfish", recipe.loss.goldfish_k == 0, "loss.goldfish_k"},
      {"loss.capacity_drop", recipe.loss.capacity == 0, "loss.capacity"},
      {"rollout.", recipe.rollout.environments.empty(), "rollout.environments"}};
  for (const auto& [word, value] : changed_words(recipe)) {
    for (const auto& [table, off, needs] : tables) {
      if (off && word.starts_with(table))
        lines.push_back(fmt::format("{} = {} does nothing without {}", word, value, needs));
    }
  }
}

// Of sources that the data are not drawn from.
void note_sources(const Recipe& recipe, std::vector<std::string>& lines) {
  const std::map<std::string_view, const char*> readers = {{"data.branch", "markov"},   {"data.depth", "pcfg"},
                                                           {"data.rules", "pcfg"},      {"data.pairs", "recall"},
                                                           {"data.modulus", "modular"}, {"data.hops", "hops"}};
  for (const auto& [word, value] : changed_words(recipe)) {
    const auto reader = readers.find(word);
    if (reader != readers.end() && !data::has_kind(recipe.data, reader->second))
      lines.push_back(fmt::format("{} = {} does nothing without data.kind = {}", word, value, reader->second));
  }
  if (!data::is_generated(recipe.data.kind)) return;
  const auto unread = [&](bool set, const char* word, const char* why) {
    if (set)
      lines.push_back(fmt::format("{} does nothing: data.kind = {} is generated{}", word, recipe.data.kind, why));
  };
  const char* fresh = ", and held-out rows are never those of training";
  unread(!recipe.data.path.empty(), "data.path", "");
  unread(recipe.data.validation > 0, "data.validation", fresh);
  unread(recipe.eval.every > 0 && !recipe.eval.data.empty(), "eval.data", fresh);
}

}  // namespace

std::vector<std::string> idle_words(const Recipe& recipe, const models::Config& config) {
  std::vector<std::string> lines = idle_words(recipe);
  note_tables(recipe, config, lines);
  note_sources(recipe, lines);
  bool routes = false, selects = false;
  models::each_part(config, [&](const models::PartSpec& part) {
    const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
    routes = routes || moe;
    selects = selects || (moe && moe->router == RouterKind::sigmoid);
  });
  const LossRecipe& loss = recipe.loss;
  const auto idle = [&](const char* word, double value, bool does, const char* why) {
    if (value > 0 && !does) lines.push_back(fmt::format("{} = {} does nothing: {}", word, value, why));
  };
  for (const auto& [word, value] :
       {std::pair("loss.aux", loss.aux), std::pair("loss.seq_aux", loss.seq_aux),
        std::pair("loss.global_aux", loss.global_aux), std::pair("loss.router_z", loss.router_z),
        std::pair("loss.capacity", loss.capacity)})
    idle(word, value, routes, "the model has no experts");
  for (const auto& [word, value] :
       {std::pair("loss.router_bias_rate", loss.router_bias_rate), std::pair("loss.quantile", loss.quantile)})
    idle(word, value, selects, routes ? "the model's routers have no selection bias" : "the model has no experts");
  return lines;
}

StateShares state_shares(const Recipe& recipe, const models::Config& config, int ranks) {
  const ParallelRecipe& p = recipe.parallel;
  const bool apart = p.divides_experts();
  const int64_t sharing = p.grid.empty() ? p.shares(ranks) * p.cp : p.axes().z;
  StateShares shares{.dense = {.ranks = static_cast<double>(sharing)}};
  if (apart) shares.experts.ranks = static_cast<double>(ranks) / static_cast<double>(p.pp * p.ep * p.etp);
  std::map<std::pair<bool, int>, double> layers;  // by whether of experts; those of layer -1 belong to none
  for (const models::TensorSpec& t : models::inventory(config)) {
    const bool expert = apart && t.experts > 0;
    const double values = static_cast<double>(t.shape.count()) / static_cast<double>(expert ? p.ep : 1);
    (expert ? shares.experts : shares.dense).values += values;
    layers[{expert, t.mtp || config.loop ? -1 : t.layer}] += values;
  }
  for (const auto& [key, values] : layers) {
    StateShares::Part& part = key.first ? shares.experts : shares.dense;
    double& of = key.second < 0 ? part.rest : part.layer;
    of = std::max(of, values);
  }
  return shares;
}

StateBytes state_bytes(const Recipe& recipe, double trained, const StateShares& shares) {
  const int64_t zero = recipe.parallel.axes().z > 1 ? 1 : recipe.parallel.zero;  // of a grid, z is zero = 1
  double part = 0, in_pass = 0, summed = 0;                                      // summed: a layer's earlier sums
  const auto add = [&](double values, const StateShares::Part& of) {
    part += values / of.ranks;
    in_pass += values / of.ranks + (of.layer + of.rest) * (1 - 1 / of.ranks);
    summed += of.layer / of.ranks;
  };
  add(trained - shares.experts.values, shares.dense);
  add(shares.experts.values, shares.experts);
  const double gradients = zero < 2 ? trained : in_pass + summed, weights = zero < 3 ? trained : in_pass;
  return {.masters = 4 * weights,
          .working = recipe.dtype == "bf16" ? 2 * weights : 0,
          .gradients = 4 * gradients,
          .moments = 8 * (zero < 1 ? trained : part),
          .mean = recipe.ema_decay > 0 ? 4 * (zero < 3 ? trained : part) : 0};
}

double copies_of(const Recipe& recipe) { return recipe.checkpoint.async && recipe.checkpoint.every > 0 ? 2 : 1; }

namespace {

// What can shrink the state, or with `passes` those.
std::string memory_hint(const Recipe& recipe, bool passes) {
  std::vector<std::string> ways;
  const bool graph = recipe.objective == "graph";
  if (copies_of(recipe) > 1) ways.emplace_back("checkpoint.async = false");
  if (graph) {
    if (passes && recipe.graph.task == "node" && recipe.graph.sample == 0) ways.emplace_back("graph.sample");
    ways.emplace_back("a smaller graph.hidden");
    return fmt::format("{}", fmt::join(ways, ", or "));
  }
  if (!passes) {
    if (recipe.ema_decay > 0) ways.emplace_back("ema.decay = 0");
    ways.emplace_back("a smaller model");
    if (recipe.lora.rank == 0 && recipe.nest.budgets.empty() && !recipe.config) ways.emplace_back("[lora]");
    return fmt::format("{}", fmt::join(ways, ", or "));
  }
  if (recipe.recompute != "full") ways.emplace_back("memory.recompute = \"full\"");
  if (recipe.batch == 0 || recipe.accumulate < recipe.batch) ways.emplace_back("a larger accumulate");
  ways.emplace_back("a smaller batch or length");
  const std::string last = ways.back();
  ways.pop_back();
  return ways.empty() ? last : fmt::format("{}, or {}", fmt::join(ways, ", "), last);
}

}  // namespace

void need_memory(const Recipe& recipe, double state, double passes, int64_t available) {
  const auto free = static_cast<double>(available);
  if (state + passes <= free) return;
  const auto gib = [](double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); };
  std::vector<std::string> parts;
  if (state > 0) parts.push_back(gib(state) + " for weights, gradients and moments");
  if (passes > 0) parts.push_back(gib(passes) + " for the passes of a step");
  fail_environment("memory", {.what = "the run does not fit",
                              .got = gib(free) + " free",
                              .expected = fmt::format("{}", fmt::join(parts, " and ")),
                              .hint = memory_hint(recipe, state <= free)});
}

void need_positions(const Recipe& recipe, const models::Config& config, int64_t length) {
  if (config.learned_positions == 0 || length <= config.learned_positions) return;
  if (!generates(recipe) && !data::is_generated(recipe.data.kind)) return;
  fail("length", {.what = "the model has no positions for rows of this length",
                  .got = std::to_string(length),
                  .expected = fmt::format("at most {}", config.learned_positions)});
}

void need_rows(const Recipe& recipe, int64_t rows, int64_t shares) {
  if (shares * recipe.accumulate <= rows) return;
  if (shares > 1)
    fail("batch", {.what = "has too few sequences for every rank and part",
                   .got = std::to_string(rows),
                   .expected = fmt::format("at least {} ranks x {} parts", shares, recipe.accumulate),
                   .hint = "fewer --ranks"});
  fail("accumulate", {.what = "more parts than the batch has sequences",
                      .got = std::to_string(recipe.accumulate),
                      .expected = fmt::format("1 to {}", rows)});
}

models::AdapterSpec adapter_spec(const Recipe& recipe) {
  const LoraRecipe& lora = recipe.lora;
  return {.rank = lora.rank,
          .alpha = lora.alpha,
          .dropout = lora.dropout,
          .targets = lora.targets,
          .target_parameters = lora.target_parameters};
}

fs::path origin_folder(const Recipe& recipe) { return fs::path(recipe.out) / "init"; }

void make_origin(const Recipe& recipe, int threads) {
  const fs::path path = origin_folder(recipe);
  if (is_origin_of(recipe, path)) return;
  const io::Json json = config_json(recipe);
  const models::Config config = models::read_config(json);
  io::AtomicFolder folder(path);
  models::write_random_weights(config, folder.place(), {.seed = static_cast<uint64_t>(recipe.seed), .threads = threads},
                               [](int64_t) { return true; });
  io::write_text_file(folder.place() / "generation_config.json", models::generation_config_text(config));
  io::write_text_file(folder.place() / "config.json", models::config_text(json, DType::bf16));
  if (!recipe.tokenizer.empty())
    models::copy_companions(find_folder("tokenizer", recipe.tokenizer).folder, folder.place());
  io::write_text_file(folder.place() / kMadeOf, made_of(recipe));
  folder.commit();
}

fs::path language_folder(const Recipe& recipe) {
  if (!recipe.config) return io::find_model(recipe.init).folder;
  const fs::path made = origin_folder(recipe);  // by the run that is resumed
  if (!recipe.tokenizer.empty())
    return is_origin_of(recipe, made) ? made : find_folder("tokenizer", recipe.tokenizer).folder;
  if (data::reads_text(recipe.data) || generates(recipe))
    fail("tokenizer",
         {.what = "text data needs a tokenizer", .expected = "tokenizer = a model folder with tokenizer.json"});
  return {};
}

}  // namespace braid::train
