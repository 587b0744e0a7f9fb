#include "apps/plan_serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "io/ordered_json.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using layout::ServingCost;
using nlohmann::ordered_json;

std::string name_of(const ServingCost& c) {
  std::string text = fmt::format("tp {}", c.parallel.tp);
  if (c.parallel.ep > 1) text += fmt::format(" ep {}", c.parallel.ep);
  if (c.parallel.pp > 1) text += fmt::format(" x pp {}", c.parallel.pp);
  if (c.replicas > 1) text += fmt::format(" x {} replicas", c.replicas);
  return text;
}

double tokens_per_second(const ServingCost& c, const layout::Answers& task) {
  return static_cast<double>(task.batch * task.answer) / c.all(task);
}

ordered_json json_of(const ServingCost& c, const layout::Answers& task) {
  return {{"name", name_of(c)},
          {"tp", c.parallel.tp},
          {"ep", c.parallel.ep},
          {"pp", c.parallel.pp},
          {"replicas", c.replicas},
          {"fits", c.fits},
          {"modelled_prompts_seconds", c.prompts},
          {"modelled_token_seconds", c.token},
          {"communication_of_token_seconds", c.sums},
          {"modelled_seconds", c.all(task)},
          {"modelled_tokens_per_second", tokens_per_second(c, task)},
          {"memory", {{"weights", c.weights}, {"cache", c.cache}}},
          {"memory_bytes", c.memory()}};
}

std::string in_bytes(double n) { return report::bytes(static_cast<int64_t>(n)); }

}  // namespace

ordered_json head_of(const std::string& model, const layout::Machine& machine, int64_t ranks, int64_t batch) {
  return {{"model", model},
          {"cluster", machine.name},
          {"roofs", machine.device.source},
          {"links", machine.links.source},
          {"efficiency", machine.device.efficiency},
          {"ranks", ranks},
          {"batch", batch}};
}

std::string machine_text(const layout::Machine& machine) {
  return fmt::format("roofs: {}; products reach {:.0f}% of it, assumed\nlinks: {}\n", machine.device.source,
                     100 * machine.device.efficiency, machine.links.source);
}

int plan_serving(const std::string& name, const layout::Model& model, const layout::Machine& machine,
                 const layout::Answers& task, int64_t top, bool json) {
  const layout::Served served = layout::find_serving(model, machine, task);
  const bool none = served.fitting.empty();
  const auto shown = none ? std::span(&served.nearest, 1)
                          : std::span(served.fitting).first(std::min(served.fitting.size(), static_cast<size_t>(top)));
  if (json) {
    ordered_json j = head_of(name, machine, task.ranks, task.batch);
    j.update(ordered_json({{"prompt", task.prompt},
                           {"answer", task.answer},
                           {"legal", served.legal},
                           {"fitting", served.fitting.size()},
                           {"layouts", ordered_json::array()}}));
    for (const ServingCost& c : shown) j["layouts"].push_back(json_of(c, task));
    fmt::print("{}\n", io::dumped(j));
  } else {
    fmt::print("{} on {} of {} ({}), {} answers of {} tokens to prompts of {}: modelled, not measured\n", name,
               report::counted(machine.links.nodes, "node"), report::counted(machine.links.gpus, "GPU"), machine.name,
               task.batch, task.answer, task.prompt);
    fmt::print("{}layouts: {} legal, {} fit\n\n", machine_text(machine), served.legal, served.fitting.size());
    report::Table table({{"layout"},
                         {"prompts", report::Align::right},
                         {"a token", report::Align::right},
                         {"of it sent", report::Align::right},
                         {"tokens/s", report::Align::right},
                         {"weights", report::Align::right},
                         {"cache", report::Align::right}});
    for (const ServingCost& c : shown)
      table.row({name_of(c), report::duration(c.prompts), report::duration(c.token), report::duration(c.sums),
                 fmt::format("{:.0f}", tokens_per_second(c, task)), in_bytes(c.weights), in_bytes(c.cache)});
    fmt::print("{}", table.plain());
  }
  if (!none) return 0;
  fail("plan layout",
       {.what = "no layout fits",
        .got = fmt::format("{} at least, for {}", in_bytes(served.nearest.memory()), name_of(served.nearest)),
        .expected = in_bytes(machine.device.memory_bytes()),
        .hint = "more --ranks, or a smaller --batch"});
}

}  // namespace braid::apps
