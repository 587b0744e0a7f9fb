// braid law plan: parameters and tokens for a budget of compute, by a fit (law/plan.h).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/law_shapes.h"
#include "apps/model_args.h"
#include "io/json.h"
#include "law/fit_file.h"
#include "law/plan.h"
#include "models/presets.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

const std::vector<std::string> kMeasures = {"params", "active"};

struct LawPlanArgs {
  std::string fit, like, measure = "params";
  int64_t length = 4096;
  double flops = 0, hours = 0, rate = 0;
  bool json = false;
  const Cli* cli = nullptr;
};

// The budget in FLOPs.
double budget(const LawPlanArgs& o) {
  const auto check = [](const char* name, double value) {
    if (value != 0 && !(value >= 1e-6 && value <= 1e60))
      fail(name, {.what = "out of range", .got = fmt::format("{}", value), .expected = "1e-6 to 1e60"});
  };
  check("--flops", o.flops);
  check("--hours", o.hours);
  check("--rate", o.rate);
  if ((o.flops == 0) == (o.hours == 0))
    fail("law plan", {.what = "no single budget", .expected = "either --flops F or --hours H"});
  if (o.hours != 0 && o.rate == 0)
    fail("--hours", {.what = "needs the speed of training", .expected = "--rate with FLOP/s"});
  return o.flops != 0 ? o.flops : 3600 * o.hours * o.rate;
}

ordered_json plan_json(const law::Fit& f, const law::Plan& p, double rate) {
  const auto range = [](const law::Range& r) { return ordered_json({r.low, r.high}); };
  ordered_json j = {{"flops", p.flops}, {"params", p.best.params}, {"tokens", p.best.tokens}, {"loss", p.loss}};
  if (rate > 0) j["hours"] = p.flops / rate / 3600;
  if (!f.draws.empty()) {
    j["params_interval"] = range(p.params);
    j["tokens_interval"] = range(p.tokens);
    j["loss_interval"] = range(p.loss_interval);
  }
  if (p.on_hull) {
    j["hull"] = {{"params", p.on_hull->params}, {"tokens", p.on_hull->tokens}};
    if (!f.frontier_draws.empty()) {
      j["hull"]["params_interval"] = range(p.hull_params);
      j["hull"]["tokens_interval"] = range(p.hull_tokens);
    }
  }
  j["extrapolation"] = p.extrapolation;
  for (const law::Deviation& d : p.deviations) {
    j["sizes"].push_back({{"params", d.shape.params}, {"tokens", d.shape.tokens}, {"loss", d.loss}});
    j["sizes"].back()["overspend"] = d.overspend ? ordered_json(*d.overspend) : ordered_json();
  }
  return j;
}

void print_plan(const law::Fit& f, const law::Plan& p, double rate) {
  using report::count;
  fmt::print("{:.3g} FLOPs{}, {:.2g} times the largest run's\n\n", p.flops,
             rate > 0 ? ", " + report::duration(p.flops / rate) : "", p.extrapolation);
  report::Table best({{"optimum"},
                      {"params", report::Align::right},
                      {"tokens", report::Align::right},
                      {"loss", report::Align::right}});
  const auto row = [&best](const char* name, double params, double tokens, const std::string& loss) {
    best.row({name, count(params), count(tokens), loss});
  };
  const auto number = [](double loss) { return fmt::format("{:.4f}", loss); };
  row("by the formula", p.best.params, p.best.tokens, number(p.loss));
  if (!f.draws.empty()) {
    row("  95% from", p.params.low, p.tokens.low, number(p.loss_interval.low));
    row("       to", p.params.high, p.tokens.high, number(p.loss_interval.high));
  }
  if (p.on_hull) row("by the hull", p.on_hull->params, p.on_hull->tokens, "-");
  if (p.on_hull && !f.frontier_draws.empty()) {
    row("  95% from", p.hull_params.low, p.hull_tokens.low, "-");
    row("       to", p.hull_params.high, p.hull_tokens.high, "-");
  }
  fmt::print("{}\n", best.plain());
  report::Table sizes({{"size"},
                       {"params", report::Align::right},
                       {"tokens", report::Align::right},
                       {"loss", report::Align::right},
                       {"FLOPs for the optimum's loss", report::Align::right}});
  for (const law::Deviation& d : p.deviations)
    sizes.row({fmt::format("{}x", d.ratio), count(d.shape.params), count(d.shape.tokens), number(d.loss),
               d.overspend ? fmt::format("{:.2f}x", *d.overspend) : "never"});
  fmt::print("{}", sizes.plain());
  if (f.left_out.sizes > 0)
    fmt::print("\nerror of the fit on a size left out: {:.2f}% rms; the intervals do not contain it\n",
               100 * f.left_out.rms);
}

ordered_json shapes_json(const law::Fit& f, const std::vector<PlannedShape>& shapes) {
  ordered_json list = ordered_json::array();
  for (const PlannedShape& s : shapes) {
    list.push_back({{"width", s.shape.width},
                    {"depth", s.shape.depth},
                    {"heads", s.heads},
                    {"params", s.params},
                    {"active", s.active},
                    {"tokens", s.tokens},
                    {"flops_per_token", s.flops_per_token},
                    {"loss", s.loss}});
    if (f.shapes ? !f.shape_draws.empty() : !f.draws.empty())
      list.back()["loss_interval"] = {s.interval.low, s.interval.high};
  }
  return list;
}

// What the table alone does not say.
void print_notes(const law::Fit& f, double optimum, const PlannedShape& least, bool active) {
  const double each = least.flops_per_token / (active ? least.active : least.params);
  if (!f.shapes && least.loss < optimum && each < f.flops_factor)
    fmt::print(
        "below the optimum above, since a token of it costs {:.3g} FLOPs a parameter, and {:.3g} in the fit's runs\n",
        each, f.flops_factor);
  if (least.narrowest)
    fmt::print("the narrowest that this config can be: for this budget a narrower one may be better\n");
}

void print_shapes(const law::Fit& f, const std::vector<PlannedShape>& shapes, double optimum, bool active) {
  using report::Align, report::count;
  report::Table table({{"layers", Align::right},
                       {"width", Align::right},
                       {"heads", Align::right},
                       {"params", Align::right},
                       {"active", Align::right},
                       {"FLOPs a token", Align::right},
                       {"tokens", Align::right},
                       {"loss", Align::right},
                       {"95% interval"}});
  const auto least = std::ranges::min_element(shapes, {}, &PlannedShape::loss);
  const bool known = f.shapes ? !f.shape_draws.empty() : !f.draws.empty();
  for (const PlannedShape& s : shapes)
    table.row({std::to_string(s.shape.depth), std::to_string(s.shape.width),
               s.heads > 0 ? std::to_string(s.heads) : "-", count(s.params), count(s.active), count(s.flops_per_token),
               count(s.tokens), fmt::format("{:.4f}{}", s.loss, &s == &*least ? "*" : " "),
               known ? fmt::format("{:.4f} to {:.4f}", s.interval.low, s.interval.high) : "-"});
  fmt::print("\n{}* the least loss, by the law of {}\n", table.plain(),
             f.shapes ? "width, depth, parameters and tokens"
                      : "parameters and tokens alone: the fit's runs identify no law of width and depth");
  print_notes(f, optimum, *least, active);
}

int law_plan(const LawPlanArgs& o) {
  if (o.like.empty())
    refuse_unread("no --like", {{"--length", typed(*o.cli, "length")}, {"--measure", typed(*o.cli, "measure")}});
  const double flops = budget(o);
  check_range("--length", o.length, 1, 1 << 24);
  const law::Fit fit = law::fit_from_json(io::Json::read(o.fit));
  const law::Plan plan = law::plan(fit, flops);
  std::vector<PlannedShape> shapes;
  if (!o.like.empty())
    shapes = plan_shapes(
        fit, flops, {.config = models::find_config(o.like).json, .length = o.length, .active = o.measure == "active"});
  if (o.json) {
    ordered_json j = plan_json(fit, plan, o.rate);
    if (!shapes.empty()) j["shapes"] = shapes_json(fit, shapes);
    fmt::print("{}\n", j.dump());
  } else {
    print_plan(fit, plan, o.rate);
    if (!shapes.empty()) print_shapes(fit, shapes, plan.loss, o.measure == "active");
  }
  if (plan.extrapolation > 10)
    fmt::print(stderr, "warning: {:.3g} times the compute of the largest run is far beyond what was fitted\n",
               plan.extrapolation);
  return 0;
}

}  // namespace

Action setup_law_plan(Cli& cli) {
  auto o = std::make_shared<LawPlanArgs>();
  o->cli = &cli;
  cli.positional("FIT.json", o->fit, "written by braid law fit");
  cli.option("--flops F", o->flops, "budget of training in FLOPs");
  cli.option("--hours H", o->hours, "or in hours at --rate");
  cli.option("--rate R", o->rate, "FLOP/s that training sustains");
  cli.option("--like NAME", o->like, "also print shapes: a preset, folder or config.json, made wider and deeper");
  cli.option("--length", o->length, "tokens of a sequence of these");
  cli.choice("--measure", o->measure, kMeasures, "what the fit's params are of these");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return law_plan(*o); };
}

}  // namespace braid::apps
