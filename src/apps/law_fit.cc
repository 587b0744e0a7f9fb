// braid law fit: a scaling law from a table of runs (law/fit.h).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "io/atomic_file.h"
#include "law/fit.h"
#include "law/fit_file.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {

struct LawFitArgs {
  std::string runs, out;
  law::Columns columns;
  double delta = 1e-3;
  int64_t resamples = 200, seed = 0;
  bool json = false;
};

void print_fit(const law::Fit& f) {
  using law::Frontier, law::Law, report::count;
  fmt::print("{} runs, {} rows, {} sizes: params {} to {}, tokens {} to {}, loss {:.4g} to {:.4g}\n\n", f.runs, f.rows,
             f.sizes, count(f.params.low), count(f.params.high), count(f.tokens.low), count(f.tokens.high), f.loss.low,
             f.loss.high);
  report::Table table({{"loss = E + A/N^alpha + B/D^beta"}, {"fit", report::Align::right}, {"95% interval"}});
  const auto row = [&table](const char* name, double value, const law::Range& r, bool known) {
    table.row({name, fmt::format("{:.4f}", value), known ? fmt::format("{:.4f} to {:.4f}", r.low, r.high) : "-"});
  };
  const auto by_law = [&](const char* name, double (*value)(const Law&)) {
    row(name, value(f.law), law::interval_of(f.draws, value), !f.draws.empty());
  };
  by_law("alpha", [](const Law& l) { return l.alpha; });
  by_law("beta", [](const Law& l) { return l.beta; });
  by_law("ln A", [](const Law& l) { return l.log_a; });
  by_law("ln B", [](const Law& l) { return l.log_b; });
  by_law("E", [](const Law& l) { return l.irreducible(); });
  by_law("N_opt over C: exponent", [](const Law& l) { return l.size_exponent(); });
  if (f.frontier) {
    const auto by_hull = [&](const char* name, double (*value)(const Frontier&)) {
      row(name, value(*f.frontier), law::interval_of(f.frontier_draws, value), !f.frontier_draws.empty());
    };
    by_hull("by the hull: N over C", [](const Frontier& h) { return h.params.exponent; });
    by_hull("by the hull: D over C", [](const Frontier& h) { return h.tokens.exponent; });
  }
  if (f.shapes) {
    using law::ShapeLaw;
    const auto by_shape = [&](const char* name, double (*value)(const ShapeLaw&)) {
      row(name, value(f.shapes->law), law::interval_of(f.shape_draws, value), !f.shape_draws.empty());
    };
    by_shape("E + A/w^a + B/d^b + C/N^c + T/D^t: a", [](const ShapeLaw& l) { return l.exponent[0]; });
    by_shape("  b", [](const ShapeLaw& l) { return l.exponent[1]; });
    by_shape("  c", [](const ShapeLaw& l) { return l.exponent[2]; });
    by_shape("  t", [](const ShapeLaw& l) { return l.exponent[3]; });
    by_shape("  E", [](const ShapeLaw& l) { return l.irreducible(); });
  }
  fmt::print("{}\n", table.plain());
  if (f.shapes) fmt::print("error on rows with width and depth {:.2f}% rms\n", 100 * f.shapes->rms);
  fmt::print("error on rows {:.2f}% rms; {:.0f}% of the best eighth of starts came near the best fit\n", 100 * f.rms,
             100 * f.starts_near);
  if (f.left_out.sizes > 0)
    fmt::print("error on a size left out {:.2f}% rms, mean {:+.2f}%, worst {:+.2f}% at {} params ({} sizes)\n",
               100 * f.left_out.rms, 100 * f.left_out.mean, 100 * f.left_out.worst, count(f.left_out.worst_params),
               f.left_out.sizes);
}

int law_fit(const LawFitArgs& o) {
  if (!(o.delta >= 1e-6 && o.delta <= 1))
    fail("--delta", {.what = "out of range", .got = fmt::format("{}", o.delta), .expected = "1e-6 to 1"});
  if (o.resamples < 0 || o.resamples > 10'000)
    fail("--resamples", {.what = "out of range", .got = std::to_string(o.resamples), .expected = "0 to 10000"});
  check_range("--seed", o.seed, 0, INT64_MAX);
  if (!o.out.empty()) io::check_new_file(o.out, ".json");
  const law::Runs runs = law::read_runs_file(o.runs, o.columns);
  const law::Fit fit = law::fit(runs, o.runs,
                                {.delta = o.delta,
                                 .resamples = o.resamples,
                                 .seed = static_cast<uint64_t>(o.seed),
                                 .threads = sys::default_threads()});
  if (!o.out.empty()) io::write_text_file(o.out, law::to_json(fit, true).dump() + "\n");
  if (o.json)
    fmt::print("{}\n", law::to_json(fit, false).dump());
  else
    print_fit(fit);
  for (const std::string& warning : fit.warnings) fmt::print(stderr, "warning: {}\n", warning);
  return 0;
}

}  // namespace

Action setup_law_fit(Cli& cli) {
  auto o = std::make_shared<LawFitArgs>();
  cli.positional("RUNS.csv", o->runs, "a row per checkpoint; - is standard input");
  cli.option("--params NAME", o->columns.params, "column of parameters");
  cli.option("--tokens NAME", o->columns.tokens, "column of tokens read so far");
  cli.option("--loss NAME", o->columns.loss, "column of losses in nats");
  cli.option("--run NAME", o->columns.run, "column of runs; \"run\" if there is one, otherwise each row is a run");
  cli.option("--flops NAME", o->columns.flops,
             "column of FLOPs so far; \"flops\" if there is one, otherwise 6 params tokens");
  cli.option("--delta", o->delta, "log residual above which the Huber loss is linear");
  cli.option("--resamples", o->resamples, "bootstrap resamples of the runs; 0: no intervals");
  cli.option("--seed", o->seed, "of the resamples");
  cli.option("-o,--out FIT.json", o->out, "write the fit for braid law plan");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return law_fit(*o); };
}

}  // namespace braid::apps
