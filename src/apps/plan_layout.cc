// braid plan layout: the fastest layouts of a training step over the ranks of a cluster, by a model of their time and
// memory (layout/cost.h). Nothing is measured: roofs and links are those of a preset or a file.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/comm_cluster.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/plan_serving.h"
#include "io/ordered_json.h"
#include "layout/search.h"
#include "models/family.h"
#include "models/presets.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using layout::Choice;
using nlohmann::ordered_json;

struct LayoutArgs {
  std::string config, cluster = "dgx-h100", recompute = "auto", dtype = "bf16", overlap = "state", sums = "f32",
                      offload = "none";
  int64_t ranks = 8, batch = 0, length = 4096, micro = 0, zero = 3, top = 5;
  int64_t prompt = 1024, answer = 256;
  double imbalance = 1;
  bool serve = false, json = false;
  const Cli* cli = nullptr;
};

constexpr std::pair<const char*, double layout::Memory::*> kMemory[] = {
    {"masters", &layout::Memory::masters},         {"working copy", &layout::Memory::working},
    {"gradients", &layout::Memory::gradients},     {"moments", &layout::Memory::moments},
    {"activations", &layout::Memory::activations}, {"working set", &layout::Memory::passes}};
constexpr std::pair<const char*, double layout::Cost::*> kTimes[] = {{"compute", &layout::Cost::compute},
                                                                     {"waits", &layout::Cost::waits},
                                                                     {"bubble", &layout::Cost::bubble},
                                                                     {"state", &layout::Cost::state},
                                                                     {"optimizer", &layout::Cost::optimizer}};

std::string gib(double bytes) { return report::bytes(static_cast<int64_t>(bytes)); }

layout::Task task_of(const LayoutArgs& o) {
  check_range("--ranks", o.ranks, 1, 65536);
  check_range("--batch", o.batch, 0, 1 << 24);
  check_range("--length", o.length, 1, 1 << 24);
  check_range("--micro", o.micro, 0, 1 << 20);
  check_range("--top", o.top, 1, 1000);
  check_range("--zero", o.zero, 0, 3);
  check_range("--prompt", o.prompt, 1, 1 << 24);
  check_range("--answer", o.answer, 1, 1 << 24);
  if (!(o.imbalance >= 1 && o.imbalance <= 1000))
    fail("--imbalance", {.what = "out of range", .got = fmt::format("{:g}", o.imbalance), .expected = "1 to 1000"});
  return {.ranks = o.ranks,
          .batch = o.batch > 0 ? o.batch : 4 * o.ranks,
          .length = o.length,
          .bf16 = o.dtype == "bf16",
          .bf16_sums = o.sums == "bf16",
          .imbalance = o.imbalance,
          .overlap = o.overlap == "state",
          .offload_optimizer = o.offload == "optimizer" || o.offload == "all",
          .offload_activations = o.offload == "activations" || o.offload == "all"};
}

ordered_json json_of(const Choice& c, const layout::Task& task) {
  const train::ParallelRecipe& p = c.layout.parallel;
  ordered_json j = {{"name", layout::name_of(c.layout, task.ranks)}};
  if (p.grid.empty())
    j.update(ordered_json({{"dp", p.shares(task.ranks)},
                           {"tp", p.tp},
                           {"sp", p.sp},
                           {"cp", p.cp},
                           {"pp", p.pp},
                           {"virtual_stages", p.virtual_stages},
                           {"ep", p.ep},
                           {"etp", p.etp},
                           {"zero", p.zero}}));
  else
    j["grid"] = p.grid;
  j.update(ordered_json({{"accumulate", c.layout.parts},
                         {"recompute", layout::name_of(c.layout.recompute)},
                         {"fits", c.fits},
                         {"modelled_step_seconds", c.cost.step},
                         {"modelled_mfu", c.cost.mfu},
                         {"exposed_seconds", c.cost.exposed()},
                         {"hidden_seconds", c.cost.hidden}}));
  for (const auto& [name, member] : kTimes) j["seconds"][name] = c.cost.*member;
  for (int a = 0; a < layout::kAxes; ++a) {
    if (c.cost.bytes[static_cast<size_t>(a)] > 0)
      j["bytes_sent"][layout::name_of(static_cast<layout::Axis>(a))] = c.cost.bytes[static_cast<size_t>(a)];
  }
  for (const auto& [name, member] : kMemory) j["memory"][name] = c.cost.memory.*member;
  j["memory_bytes"] = c.cost.memory.sum();
  j["host_bytes"] = c.cost.host_bytes;
  return j;
}

// The terms of a choice, a line each.
void explain(const Choice& c, int64_t ranks, const layout::Device& device) {
  fmt::print("{}, {}, recompute {}\n", layout::name_of(c.layout, ranks), report::counted(c.layout.parts, "part"),
             layout::name_of(c.layout.recompute));
  std::string text;
  const auto add = [&](const std::string& term) { text += (text.empty() ? "" : ", ") + term; };
  for (const auto& [name, member] : kTimes) {
    if (c.cost.*member > 0) add(fmt::format("{} {}", name, report::duration(c.cost.*member)));
  }
  fmt::print("  step    {}: {}; {} hidden\n", report::duration(c.cost.step), text, report::duration(c.cost.hidden));
  text.clear();
  for (size_t a = 0; a < layout::kAxes; ++a) {
    if (c.cost.bytes[a] > 0)
      add(fmt::format("{} {} in {}", layout::name_of(static_cast<layout::Axis>(a)), gib(c.cost.bytes[a]),
                      report::duration(c.cost.seconds[a])));
  }
  if (!text.empty()) fmt::print("  sends   {}\n", text);
  text.clear();
  for (const auto& [name, member] : kMemory) {
    if (c.cost.memory.*member > 0) add(fmt::format("{} {}", name, gib(c.cost.memory.*member)));
  }
  if (c.cost.host_bytes > 0) fmt::print("  host    {} there and back\n", gib(c.cost.host_bytes));
  fmt::print("  memory  {} of {}: {}\n", gib(c.cost.memory.sum()), gib(device.memory_bytes()), text);
}

void print(const LayoutArgs& o, const layout::Machine& machine, const layout::Task& task, const layout::Found& found,
           std::span<const Choice> top) {
  const comm::Cluster& links = machine.links;
  fmt::print("{} on {} of {} ({}), a batch of {} x {} tokens: modelled, not measured\n", o.config,
             report::counted(links.nodes, "node"), report::counted(links.gpus, "GPU"), machine.name, task.batch,
             task.length);
  fmt::print("{}layouts: {} legal, {} fit\n\n", machine_text(machine), found.legal, found.fitting.size());
  report::Table table({{"layout"},
                       {"parts", report::Align::right},
                       {"recompute"},
                       {"step", report::Align::right},
                       {"MFU", report::Align::right},
                       {"exposed", report::Align::right},
                       {"bubble", report::Align::right},
                       {"memory", report::Align::right}});
  for (const Choice& c : top)
    table.row({layout::name_of(c.layout, task.ranks), std::to_string(c.layout.parts),
               layout::name_of(c.layout.recompute), report::duration(c.cost.step),
               fmt::format("{:.1f}%", 100 * c.cost.mfu), report::duration(c.cost.exposed()),
               report::duration(c.cost.bubble), gib(c.cost.memory.sum())});
  fmt::print("{}\n", table.plain());
  for (const Choice& c : top) explain(c, task.ranks, machine.device);
}

// Options of the other kind of plan would change nothing.
void check_kind(const LayoutArgs& o) {
  for (const char* name : {"length", "micro", "zero", "recompute", "overlap", "offload", "sums"}) {
    if (o.serve && typed(*o.cli, name))
      fail(fmt::format("--{}", name),
           {.what = "applies only to training", .got = "--serve", .hint = "either without the other"});
  }
  for (const char* name : {"prompt", "answer"}) {
    if (!o.serve && typed(*o.cli, name))
      fail(fmt::format("--{}", name), {.what = "applies only to serving", .hint = "--serve"});
  }
}

int plan_layout(LayoutArgs o) {
  check_kind(o);
  const models::ConfigSource source = models::find_config(o.config);
  const models::Config config = models::read_config(source.json);
  const int64_t limit = config.positions_limit();
  if (limit > 0 && !typed(*o.cli, "length")) o.length = std::min(o.length, limit);
  const layout::Task task = task_of(o);
  const int64_t longest = o.serve ? o.prompt + o.answer : o.length;
  if (limit > 0 && longest > limit)
    fail(o.serve ? "--prompt" : "--length", {.what = "is longer than the model's positions",
                                             .got = std::to_string(longest),
                                             .expected = fmt::format("at most {} tokens of a sequence", limit)});
  const layout::Machine machine = layout::with_ranks(find_machine(o.cluster), task.ranks);
  if (o.offload != "none" && machine.device.host_gb_per_s == 0)
    fail("--offload",
         {.what = "needs the rate of the link to a host's memory", .hint = "device.host_gb_per_s in --cluster FILE"});
  train::Recipe recipe;
  recipe.dtype = o.dtype;
  recipe.loss.mtp_scale = config.mtp ? 0.3 : 0;
  const layout::Model model(config, recipe, task.length);
  if (o.serve) {
    const layout::Answers answers{.ranks = task.ranks, .batch = task.batch, .prompt = o.prompt, .answer = o.answer};
    return plan_serving(source.name, model, machine, answers, o.top, o.json);
  }
  layout::Space space{.zero_most = o.zero, .auto_recompute = o.recompute == "auto", .micro = o.micro};
  if (!space.auto_recompute) space.recompute = parse_recompute(o.recompute, "--recompute").kind;
  if (space.recompute == Recompute::Kind::fit)
    fail("--recompute", {.what = "a budget depends on the step", .expected = "none, selective, full or auto"});
  report::Progress bar("planning", 0);
  space.progress = [&bar](int64_t done, int64_t) { bar.at(done); };
  const layout::Found found = layout::find_layouts(model, machine, task, space);
  bar.wipe();
  const bool none = found.fitting.empty();
  const auto top = none ? std::span(&found.nearest, 1)
                        : std::span(found.fitting).first(std::min(found.fitting.size(), static_cast<size_t>(o.top)));
  if (o.json) {
    ordered_json j = head_of(source.name, machine, task.ranks, task.batch);
    j.update(ordered_json({{"length", task.length},
                           {"legal", found.legal},
                           {"fitting", found.fitting.size()},
                           {"layouts", ordered_json::array()}}));
    for (const Choice& c : top) j["layouts"].push_back(json_of(c, task));
    fmt::print("{}\n", io::dumped(j));
  } else {
    print(o, machine, task, found, top);
  }
  if (!none) return 0;
  fail("plan layout",
       {.what = "no layout fits",
        .got = fmt::format("{} at least, for {}", gib(found.nearest.cost.memory.sum()),
                           layout::name_of(found.nearest.layout, task.ranks)),
        .expected = gib(machine.device.memory_bytes()),
        .hint = o.micro > 1 ? "a smaller --micro, or more --ranks" : "more --ranks, or a shorter --length"});
}

}  // namespace

Action setup_plan_layout(Cli& cli) {
  auto o = std::make_shared<LayoutArgs>();
  o->cli = &cli;
  cli.positional(
      "config", o->config,
      "a folder, a GGUF file, a config.json, org/name of the Hugging Face cache, tiny, or a shape of braid new");
  cli.option("--ranks", o->ranks, "accelerators");
  cli.option("--cluster NAME", o->cluster, "a preset, or a TOML file with links and [device]");
  cli.option("--batch", o->batch, "sequences of a step; 0: 4 a rank");
  cli.option("--length", o->length, "tokens of a sequence");
  cli.option("--micro", o->micro, "sequences of a part of the batch; 0: the fastest that fits");
  cli.option("--zero", o->zero, "highest parallel.zero to try");
  cli.option("--recompute", o->recompute, "none, selective, full; auto: the least that fits");
  cli.choice("--overlap", o->overlap, {"state", "none"},
             "state: gradients and weights of data-parallel ranks travel behind other layers; none: as braid train");
  cli.choice("--offload", o->offload, {"none", "optimizer", "activations", "all"},
             "what lies in the host's memory, which is assumed to have room");
  cli.choice("--dtype", o->dtype, {"f32", "bf16"}, "dtype of the operands of matrix products");
  cli.choice("--sums", o->sums, {"f32", "bf16"}, "activations that ranks add up; f32: as braid train");
  cli.option("--imbalance", o->imbalance, "rows of the busiest rank's experts over the mean");
  cli.flag("--serve", o->serve, "layouts for answers instead of training: tensor parallel, stages, replicas");
  cli.option("--prompt", o->prompt, "tokens of a prompt, of --batch answers at a time");
  cli.option("--answer", o->answer, "tokens of an answer");
  cli.option("--top", o->top, "layouts to print");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return plan_layout(*o); };
}

}  // namespace braid::apps
