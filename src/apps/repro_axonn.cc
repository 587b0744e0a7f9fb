// braid repro axonn: the published rates of AxoNN's 4-D grids beside modelled steps of a model of 80B parameters on
// the same machines, divided by the best grid, by tensor parallelism within nodes and by FSDP; and what each of its
// three overlaps hides.
//   https://arxiv.org/abs/2502.08145 (abstract: rates; section 5: the model of time)
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "io/ordered_json.h"
#include "layout/cost.h"
#include "layout/search.h"
#include "models/family.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using layout::Choice;
using nlohmann::ordered_json;

struct AxonnRate {
  const char* machine;
  int64_t gpus;
  double pflops;  // of all, in BF16
};
constexpr AxonnRate kAxonnRates[] = {{"perlmutter", 4096, 620.1}, {"frontier", 32768, 1381}, {"alps", 6144, 1423}};

// The paper's abstract speaks of a model of 80B; this shape is ours.
constexpr const char* kAxonnShape =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
  "vocab_size": 32000, "hidden_size": 12288, "num_hidden_layers": 44, "num_attention_heads": 96,
  "num_key_value_heads": 96, "head_dim": 128, "attention_bias": false, "mlp_bias": false, "intermediate_size": 32768,
  "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null,
  "max_position_embeddings": 2048, "initializer_range": 0.02, "tie_word_embeddings": false, "bos_token_id": 1,
  "eos_token_id": 2})";
constexpr int64_t kAxonnLength = 2048;

struct AxonnArgs {
  std::string machine = "perlmutter";
  int64_t ranks = 0, batch = 8192;
  bool json = false;
};

struct AxonnPlan {
  const AxonnArgs& args;
  const AxonnRate& published;
  int64_t ranks;
  layout::Machine machine;
  layout::Model model;
  layout::Task task;

  double tflops(const Choice& c) const { return c.cost.mfu * machine.device.tflops; }
};

AxonnPlan plan_for(const AxonnArgs& o) {
  const auto* row = std::find_if(std::begin(kAxonnRates), std::end(kAxonnRates),
                                 [&](const AxonnRate& p) { return o.machine == p.machine; });
  if (row == std::end(kAxonnRates))
    fail("--machine",
         {.what = "has no published rate", .got = printable(o.machine), .expected = "perlmutter, frontier or alps"});
  check_range("--ranks", o.ranks, 0, 32768);
  check_range("--batch", o.batch, 1, 1 << 20);
  const int64_t ranks = o.ranks > 0 ? o.ranks : row->gpus;
  layout::Machine machine = layout::with_ranks(*layout::machine_preset(row->machine), ranks);
  return {o,
          *row,
          ranks,
          machine,
          layout::Model(models::read_config(io::Json::parse(kAxonnShape, "the shape of 80B")), {}, kAxonnLength),
          {.ranks = ranks, .batch = o.batch, .length = kAxonnLength, .bf16_sums = true}};
}

// The fastest of those that fit; else the one that needs least.
std::optional<Choice> best_of(const AxonnPlan& plan, const std::vector<train::ParallelRecipe>& list) {
  std::optional<Choice> best;
  report::Progress bar("planning", std::ssize(list));
  int64_t done = 0;
  for (const train::ParallelRecipe& p : list) {
    bar.at(done++);
    Choice c = layout::best_of(plan.model, plan.machine, plan.task, {}, p);
    const bool better = !best || (c.fits != best->fits ? c.fits
                                  : c.fits             ? c.cost.step < best->cost.step
                                                       : c.cost.memory.sum() < best->cost.memory.sum());
    if (better) best = std::move(c);
  }
  return best;
}

struct AxonnStrategy {
  const char* name;
  std::optional<Choice> best{};
};

std::vector<AxonnStrategy> strategies_of(const AxonnPlan& plan) {
  std::vector<train::ParallelRecipe> grids, tensors, fsdp;
  const int64_t node = std::min<int64_t>(plan.machine.links.gpus, plan.ranks);
  for (train::ParallelRecipe& p : layout::layouts(plan.model, plan.task, {})) {
    const bool plain = p.cp == 1 && p.pp == 1 && !p.sp && p.grid.empty();
    if (plain && p.tp == node && p.zero == 1) tensors.push_back(p);
    if (plain && p.tp == 1 && p.zero == 3) fsdp.push_back(p);
    if (!p.grid.empty()) grids.push_back(std::move(p));
  }
  return {{"4-D grid", best_of(plan, grids)},
          {"Megatron's TP, a node", best_of(plan, tensors)},
          {"FSDP", best_of(plan, fsdp)}};
}

// Seconds of a step with more and more hidden: nothing; all-reduces of the inputs' gradients behind the products for
// those of the weights; and gradients and weights behind other layers.
struct AxonnOverlaps {
  double none = 0, reduced = 0, all = 0;
};

AxonnOverlaps overlaps_of(const AxonnPlan& plan, const Choice& c) {
  layout::Task waits = plan.task;
  waits.overlap = false;
  const auto step = [&](const layout::Task& sums, const layout::Task& state) {
    return layout::cost_of(plan.model, plan.machine, state, layout::work_of(plan.model, plan.machine, sums, c.layout))
        .step;
  };
  return {step(waits, waits), step(plan.task, waits), c.cost.step};
}

void print(const AxonnPlan& plan, const std::vector<AxonnStrategy>& strategies) {
  using report::Align;
  report::Table table({{"divided by"},
                       {"layout"},
                       {"step", Align::right},
                       {"TFLOP/s a GPU", Align::right},
                       {"exposed", Align::right},
                       {"memory", Align::right}});
  for (const AxonnStrategy& s : strategies) {
    if (!s.best) {
      table.row({s.name, "fewer sequences than ranks", "-", "-", "-", "-"});
      continue;
    }
    const Choice& c = *s.best;
    table.row({s.name, layout::name_of(c.layout, plan.ranks), c.fits ? report::duration(c.cost.step) : "does not fit",
               c.fits ? fmt::format("{:.0f}", plan.tflops(c)) : "-", c.fits ? report::duration(c.cost.exposed()) : "-",
               report::bytes(static_cast<int64_t>(c.cost.memory.sum()))});
  }
  fmt::print("80B on {} GPUs of {}, {} sequences of {} tokens, BF16: modelled, not measured\n{}", plan.ranks,
             plan.machine.name, plan.args.batch, kAxonnLength, table.plain());
  const AxonnRate& p = plan.published;
  fmt::print("published (arXiv 2502.08145, abstract): {:g} PFLOP/s on {} GPUs, {:.0f} TFLOP/s each\n", p.pflops, p.gpus,
             1e3 * p.pflops / static_cast<double>(p.gpus));
  if (!strategies[0].best || !strategies[0].best->fits) return;
  const AxonnOverlaps t = overlaps_of(plan, *strategies[0].best);
  fmt::print(
      "\nThe grid's step, modelled: {} when all is waited for, {} with all-reduces behind the products for weights'\n"
      "gradients, {} with the sums of gradients and the gathers of weights behind other layers as well.\n"
      "The published model, its batch and its kernels are not known here; weights are whole along z.\n",
      report::duration(t.none), report::duration(t.reduced), report::duration(t.all));
}

int repro_axonn(const AxonnArgs& o) {
  const AxonnPlan plan = plan_for(o);
  const std::vector<AxonnStrategy> strategies = strategies_of(plan);
  if (!o.json) {
    print(plan, strategies);
    return 0;
  }
  ordered_json j = {
      {"machine", plan.machine.name}, {"ranks", plan.ranks}, {"batch", o.batch}, {"length", kAxonnLength}};
  j["published"] = {{"gpus", plan.published.gpus}, {"pflops", plan.published.pflops}};
  for (const AxonnStrategy& s : strategies) {
    ordered_json row = {{"divided_by", s.name}, {"fits", s.best && s.best->fits}};
    if (s.best && s.best->fits)
      row.update(ordered_json({{"layout", layout::name_of(s.best->layout, plan.ranks)},
                               {"modelled_step_seconds", s.best->cost.step},
                               {"modelled_tflops_per_gpu", plan.tflops(*s.best)},
                               {"exposed_seconds", s.best->cost.exposed()}}));
    j["strategies"].push_back(row);
  }
  if (strategies[0].best && strategies[0].best->fits) {
    const AxonnOverlaps t = overlaps_of(plan, *strategies[0].best);
    j["modelled_overlap_seconds"] = {{"none", t.none}, {"all_reduces", t.reduced}, {"all", t.all}};
  }
  fmt::print("{}\n", io::dumped(j));
  return 0;
}

}  // namespace

Action setup_repro_axonn(Cli& cli) {
  auto o = std::make_shared<AxonnArgs>();
  cli.option("--machine NAME", o->machine, "perlmutter, frontier or alps");
  cli.option("--ranks", o->ranks, "GPUs; 0: as many as the published run had");
  cli.option("--batch", o->batch, "sequences of 2048 tokens in a step");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_axonn(*o); };
}

}  // namespace braid::apps
