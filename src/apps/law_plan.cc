// braid law plan: parameters and tokens for a budget of compute, by a fit (law/plan.h).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "io/json.h"
#include "law/fit_file.h"
#include "law/plan.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

struct LawPlanArgs {
  std::string fit;
  double flops = 0, hours = 0, rate = 0;
  bool json = false;
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

int law_plan(const LawPlanArgs& o) {
  const double flops = budget(o);
  const law::Fit fit = law::fit_from_json(io::Json::read(o.fit));
  const law::Plan plan = law::plan(fit, flops);
  if (o.json)
    fmt::print("{}\n", plan_json(fit, plan, o.rate).dump());
  else
    print_plan(fit, plan, o.rate);
  if (plan.extrapolation > 10)
    fmt::print(stderr, "warning: {:.3g} times the compute of the largest run is far beyond what was fitted\n",
               plan.extrapolation);
  return 0;
}

}  // namespace

Action setup_law_plan(Cli& cli) {
  auto o = std::make_shared<LawPlanArgs>();
  cli.positional("FIT.json", o->fit, "written by braid law fit");
  cli.option("--flops F", o->flops, "budget of training in FLOPs");
  cli.option("--hours H", o->hours, "or in hours at --rate");
  cli.option("--rate R", o->rate, "FLOP/s that training sustains");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return law_plan(*o); };
}

}  // namespace braid::apps
