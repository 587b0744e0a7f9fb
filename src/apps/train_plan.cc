#include "apps/train_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/rank_memory.h"
#include "data/loader.h"
#include "io/ordered_json.h"
#include "models/count.h"
#include "models/empty_model.h"
#include "models/master_weights.h"
#include "plan/memory.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/memory.h"
#include "sys/roofs.h"
#include "train/depth.h"
#include "train/origin.h"
#include "train/rehearsal.h"
#include "train/rollout.h"

namespace braid::apps {
namespace {

// Rows per step and tokens per row; some sets define their own.
struct Size {
  int64_t rows, length;
};
Size size_of(const train::Recipe& recipe, int64_t vocab) {
  if (train::generates(recipe)) return {train::rollout_rows(recipe), train::rollout_length(recipe)};
  const bool answers = data::has_answers(recipe.data);                   // as long as they are, whatever length says
  const bool refuses = answers || data::is_generated(recipe.data.kind);  // rows that are too short for it
  if (recipe.batch > 0 && recipe.length > 0 && !refuses) return {recipe.batch, recipe.length};
  const data::Loader loader =
      data::open(train::data_spec(recipe), answers ? train::language_folder(recipe) : "", vocab);
  return {loader.rows(), loader.length()};
}

constexpr const char* kSnapshot = "what changes while a checkpoint is written";
// Memory by kind, in the order in which it is shown.
struct Memory {
  std::vector<std::pair<std::string, double>> rows{};  // what, and its bytes
  double sum = 0;

  void row(const std::string& what, double bytes) {
    if (bytes <= 0) return;
    rows.emplace_back(what, bytes);
    sum += bytes;
  }
};

const char* name_of_letter(char letter) {
  switch (letter) {
    case 'M':
      return "Mamba-2";
    case '*':
      return "attention";
    case '-':
      return "MLP";
    case 'E':
      return "experts";
    default:
      return "linear";
  }
}

// What layers retain by type, then the rest of the plan: gradients in flight and workspace.
void activations(const train::Recipe& recipe, const models::Config& config, int64_t tokens, const StepPlan& plan,
                 Memory& memory) {
  const Recompute::Kind kind = parse_recompute(recipe.recompute).kind;
  const auto total = static_cast<double>(plan.arena.bytes);
  if (kind == Recompute::Kind::fit) return memory.row("activations, gradients in flight, workspace", total);
  const auto bytes = plan::ElementBytes::of(train::numerics_of(recipe).products);
  models::Config trained = config;
  if (config.loop) trained.loop = train::loop_of(recipe, *config.loop);
  double left = total;
  for (const auto& [letter, per_token] : plan::saved_by_letter(trained, bytes, kind)) {
    const double kept = per_token * static_cast<double>(tokens);
    memory.row(fmt::format("activations, {}", name_of_letter(letter)), kept);
    left -= kept;
  }
  memory.row("gradients in flight, workspace, the rest", left);
}

struct Plan {
  Memory memory{};
  train::StateBytes state{};
  StepPlan step{};
  int ranks = 1;
  double parameters = 0, trained = 0, active = 0;
  int64_t rows = 0, length = 0, part = 0;  // of a step; tokens of a part of it
  double formula = 0;                      // FLOPs of a token
  double needed = 0;                       // bytes that the run allocates; the model under adapters is mapped

  double tokens() const { return static_cast<double>(rows * length); }
  double per_token() const { return step.flops / static_cast<double>(part); }
};

// A model whose masters train, from its config alone.
models::Model whole_model(const train::Recipe& recipe, const models::Config& config, Plan& plan) {
  plan.trained = plan.parameters;
  plan.state = train::state_bytes(recipe, plan.trained, train::state_shares(recipe, config, plan.ranks));
  plan.memory.row("master weights, FP32", plan.state.masters);
  plan.memory.row("working copy, BF16", plan.state.working);
  return models::empty_model(config, recipe.dtype == "bf16" ? DType::bf16 : DType::f32);
}

// A model whose adapters train: its sizes come from its folder.
std::unique_ptr<models::Model> adapted_model(const train::Recipe& recipe, models::MasterWeights& masters, Plan& plan) {
  if (recipe.init.empty())
    fail("--dry-run", {.what = "with [lora] needs the model that is adapted", .hint = "init = a model folder"});
  const io::ModelPath path = io::find_model(recipe.init);
  auto model = masters.adapt(path, train::adapter_spec(recipe), 0);
  model->dropout = train::config_of(recipe).dropout;
  plan.trained = static_cast<double>(masters.trained());
  plan.state = train::state_bytes(recipe, plan.trained);
  double weights = 0, grads = 0;  // these of working copies that adapters are folded into
  for (const Param* p : model->params()) {
    weights += static_cast<double>(p->value.bytes());
    if (p->grad) grads += static_cast<double>(p->grad.bytes());
  }
  plan.memory.row("the model, as products read it", weights);
  plan.memory.row("gradients of adapted experts and head", grads);
  plan.memory.row("adapters, FP32", plan.state.masters);
  plan.memory.row("their working copy, BF16", plan.state.working);
  return model;
}

Plan make_plan(const train::Recipe& recipe, int ranks) {
  const models::Config config = train::config_of(recipe);
  train::check_trainable(config);
  for (const std::string& line : train::idle_words(recipe, config)) fmt::print(stderr, "{}\n", line);
  const models::Parameters n = models::count_parameters(config);
  Plan plan{.ranks = ranks};
  plan.parameters = static_cast<double>(n.total + n.mtp);
  plan.active = static_cast<double>(n.active);
  const Size size = size_of(recipe, config.vocab);
  const int64_t shares = recipe.parallel.shares(ranks), own = (size.rows + shares - 1) / shares;
  train::need_rows(recipe, size.rows, shares);
  plan.rows = size.rows;
  plan.length = size.length;
  train::need_positions(recipe, config, plan.length);
  plan.part = (own + recipe.accumulate - 1) / recipe.accumulate * plan.length;
  plan.formula = train::flops_per_token(config, plan.length);
  Arena arena;
  const Ctx ctx{.arena = arena};
  if (recipe.lora.rank > 0) {
    models::MasterWeights masters(train::numerics_of(recipe).products);
    plan.step = train::rehearse(recipe, *adapted_model(recipe, masters, plan), ctx, own, plan.length);
  } else {
    models::Model model = whole_model(recipe, config, plan);
    plan.step = train::rehearse(recipe, model, ctx, own, plan.length);
  }
  if (recipe.lora.rank == 0 && divides_layers(recipe.parallel)) {  // `step` is one of the whole model: FLOPs of a token
    plan.memory = {};
    for (const auto& [what, bytes] : rank_memory(recipe, config, ranks, plan.rows, plan.length))
      plan.memory.row(what, bytes);
    if (train::copies_of(recipe) > 1) plan.memory.row(kSnapshot, plan.memory.sum);
    plan.needed = plan.memory.sum;
    return plan;
  }
  plan.memory.row("gradients, FP32", plan.state.gradients);
  plan.memory.row("moments, FP32", plan.state.moments);
  plan.memory.row("running mean, FP32", plan.state.mean);
  activations(recipe, config, plan.part, plan.step, plan.memory);
  if (train::copies_of(recipe) > 1) plan.memory.row(kSnapshot, plan.memory.sum);
  plan.needed = train::copies_of(recipe) * (plan.state.sum() + static_cast<double>(plan.step.arena.bytes));
  return plan;
}

// The speed to expect on this machine.
struct Forecast {
  double flops_per_second, bytes_per_second;
  double seconds, mfu;

  Forecast(const Plan& plan, bool rounded) {
    report::status("measuring what this machine can do");
    flops_per_second = sys::product_roof(rounded);
    bytes_per_second = sys::read_roof();
    const double part = static_cast<double>(plan.part);
    // Operations at the roof of products and bytes at that of memory, one after the other; the optimiser reads
    // gradient, master and moments and writes all but the first.
    const double moved = plan.step.bytes_moved * plan.tokens() / part + (rounded ? 30 : 28) * plan.trained;
    seconds = plan.per_token() * plan.tokens() / flops_per_second + moved / bytes_per_second;
    mfu = (plan.per_token() - plan.step.flops_again / part) * plan.tokens() / seconds / flops_per_second;
  }
};

void print_json(const train::Recipe& recipe, const Plan& plan, const Forecast& forecast) {
  nlohmann::ordered_json memory;
  for (const auto& [what, bytes] : plan.memory.rows) memory[what] = static_cast<int64_t>(bytes);
  const nlohmann::ordered_json j = {{"parameters", static_cast<int64_t>(plan.parameters)},
                                    {"trained", static_cast<int64_t>(plan.trained)},
                                    {"active", static_cast<int64_t>(plan.active)},
                                    {"rows", plan.rows},
                                    {"length", plan.length},
                                    {"accumulate", recipe.accumulate},
                                    {"memory", memory},
                                    {"memory_bytes", static_cast<int64_t>(plan.memory.sum)},
                                    {"memory_needed", static_cast<int64_t>(plan.needed)},
                                    {"memory_available", sys::memory_available()},
                                    {"flops_per_token", plan.per_token()},
                                    {"flops_again_per_token", plan.step.flops_again / static_cast<double>(plan.part)},
                                    {"flops_per_token_by_formula", plan.formula},
                                    {"roof_flops_per_second", forecast.flops_per_second},
                                    {"roof_bytes_per_second", forecast.bytes_per_second},
                                    {"floor_seconds", forecast.seconds},
                                    {"roof_tokens_per_second", plan.tokens() / forecast.seconds},
                                    {"roof_mfu", forecast.mfu}};
  fmt::print("{}\n", io::dumped(j, 1));
}

void print_text(const train::Recipe& recipe, const Plan& plan, const Forecast& forecast) {
  fmt::print("{}\n", train::to_toml(recipe, true));
  report::Table table(
      {{plan.ranks > 1 ? "memory of a rank" : "memory of", report::Align::left}, {"bytes", report::Align::right}});
  for (const auto& [what, bytes] : plan.memory.rows) table.row({what, report::bytes(static_cast<int64_t>(bytes))});
  table.row({"together", report::bytes(static_cast<int64_t>(plan.memory.sum))});
  fmt::print("{}\n", table.plain());
  fmt::print("parameters       {}, {} active, {} trained\n", report::count(plan.parameters), report::count(plan.active),
             report::count(plan.trained));
  fmt::print("a step           rows: {}, tokens of each: {}, parts: {}\n", plan.rows, plan.length, recipe.accumulate);
  fmt::print("a token          {}FLOP counted, {:.1f}% of them for the second time; {}FLOP by formula\n",
             report::count(plan.per_token()), 100 * plan.step.flops_again / plan.step.flops,
             report::count(plan.formula));
  const int64_t available = sys::memory_available();
  fmt::print("memory           {} free{}\n", report::bytes(available),
             plan.needed <= static_cast<double>(available) ? "" : ": the run does not fit");
  fmt::print("this machine     {}, {:.1f} GB/s, measured\n", report::rate(forecast.flops_per_second, 1, "FLOP"),
             forecast.bytes_per_second / 1e9);
  fmt::print("to expect        {:.0f} tokens/s at most, MFU {:.0f}%: {} a step\n", plan.tokens() / forecast.seconds,
             100 * forecast.mfu, report::duration(forecast.seconds));
}

}  // namespace

void print_train_plan(const train::Recipe& recipe, int ranks, bool json) {
  const Plan plan = make_plan(recipe, ranks);
  const Forecast forecast(plan, recipe.dtype == "bf16");
  if (json) return print_json(recipe, plan, forecast);
  print_text(recipe, plan, forecast);
}

}  // namespace braid::apps
