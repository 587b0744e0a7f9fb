// braid repro gemstones: a scaling law against a truth that is known. Small models of several sizes learn a source
// whose entropy is known; the law that is fitted to all sizes but the largest predicts the losses of that one, and its
// E is compared with the entropy. It also prints the fits that Gemstones published for its own runs and, given their
// rows, which are not part of the repository, fits them again.
//   https://arxiv.org/abs/2502.06857; rows and fits: github.com/mcleish7/gemstone-scaling-laws
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/sweep.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "law/fit.h"
#include "report/curve.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct GemstonesArgs {
  std::string dir = "gemstones", grid, runs, published, csv, svg;
  int64_t steps = 1600, points = 5, threads = 0;
  bool json = false;
};

constexpr const char* kUsualGrid = "16,24,32,40,48x2 96x2";
constexpr const char* kGemstonesRecipe = R"({"dtype": "f32", "batch": 8, "length": 128,
  "config": {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "dtype": "bfloat16",
    "hybrid_override_pattern": "M-*-", "hidden_size": 16, "vocab_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "mamba_num_heads": 2, "mamba_head_dim": 16,
    "ssm_state_size": 16, "n_groups": 1, "conv_kernel": 4, "chunk_size": 32, "intermediate_size": 48,
    "mlp_hidden_act": "relu2", "max_position_embeddings": 128, "tie_word_embeddings": false,
    "layer_norm_epsilon": 1e-5},
  "data": {"kind": "markov", "states": 256, "branch": 32}, "optimizer": {"lr": 1e-2}, "schedule": {"warmup": 20},
  "eval": {"batches": 64}})";

// Fits of its runs that Gemstones publishes; the exponent of N_opt over C by its hull.
struct PublishedFit {
  const char* rows;
  double alpha, beta, log_e, hull;
  const char* file;  // of the rows, in the folder of --published
};
constexpr PublishedFit kPublishedFits[] = {
    {"22 shapes to 100 B tokens", 0.2989, 0.6928, 0.766, 0.499, "gemstones-hot.csv"}};

// A row that no fit has seen.
struct Predicted {
  law::Row row;
  double loss;  // by the law of the others
  double error() const { return loss / row.loss - 1; }
};

struct Study {
  law::Runs runs{};
  double entropy = 0;
  law::Fit fit{};  // of all sizes but the largest
  double largest = 0, next = 0;
  std::vector<Predicted> predicted{};
};

// The exit code.
int train_study(const GemstonesArgs& o) {
  SweepSpec spec{.recipe = train::read_recipe(io::Json::parse(kGemstonesRecipe, "braid repro gemstones")),
                 .shapes = read_grid(o.grid.empty() ? kUsualGrid : o.grid),
                 .points = o.points,
                 .dir = fs::absolute(o.dir)};
  spec.recipe.steps = o.steps;
  const std::vector<Branches> grid = grid_of(spec);
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  open_sweep(spec);
  return train_grid(spec, grid, o.threads, spec.dir / "runs.csv", [](const SweepRow&) {});
}

Study study_of(const std::string& table) {
  Study s{.runs = law::read_runs_file(table)};
  s.entropy = law::read_runs_file(table, {.loss = "floor"}).rows.at(0).loss;
  std::set<double> sizes;
  for (const law::Row& row : s.runs.rows) sizes.insert(row.params);
  if (sizes.size() < 4)
    fail(printable(table), {.what = "has too few sizes", .got = std::to_string(sizes.size()), .expected = "4 or more"});
  s.largest = *sizes.rbegin();
  s.next = *std::next(sizes.rbegin());
  law::Runs others = s.runs;
  std::erase_if(others.rows, [&](const law::Row& row) { return row.params == s.largest; });
  // Runs are numbered without gaps.
  std::set<int64_t> left;
  for (const law::Row& row : others.rows) left.insert(row.run);
  for (law::Row& row : others.rows) row.run = std::distance(left.begin(), left.find(row.run));
  others.count = std::ssize(left);
  s.fit = law::fit(others, table, {.threads = sys::default_threads()});
  for (const law::Row& row : s.runs.rows) {
    if (row.params == s.largest) s.predicted.push_back({row, s.fit.law.loss(row.params, row.tokens)});
  }
  return s;
}

law::Range entropy_interval(const law::Fit& fit) {
  return law::interval_of(fit.draws, [](const law::Law& l) { return l.irreducible(); });
}

std::string picture(const Study& s) {
  report::Curve curve{.title = "held-out loss of annealed runs (measured), and the law of all sizes but the largest",
                      .x_label = "tokens",
                      .y_label = "loss, nats",
                      .log_x = true};
  std::set<double> sizes;
  for (const law::Row& row : s.runs.rows) sizes.insert(row.params);
  for (const double size : sizes) {
    report::Series measured{report::count(size) + " parameters", {}};
    for (const law::Row& row : s.runs.rows) {
      if (row.params == size) measured.points.emplace_back(row.tokens, row.loss);
    }
    std::sort(measured.points.begin(), measured.points.end());
    curve.series.push_back(std::move(measured));
  }
  report::Series law{report::count(s.largest) + ", predicted", {}}, floor{"entropy", {}};
  for (const auto& [tokens, loss] : curve.series.back().points) {
    law.points.emplace_back(tokens, s.fit.law.loss(s.largest, tokens));
    floor.points.emplace_back(tokens, s.entropy);
  }
  curve.series.push_back(std::move(law));
  curve.series.push_back(std::move(floor));
  return report::svg(curve);
}

// Ours of the published rows, where the caller has them.
std::optional<law::Fit> refit(const GemstonesArgs& o, const PublishedFit& p) {
  if (o.published.empty()) return std::nullopt;
  const std::string file = (fs::path(o.published) / p.file).string();
  return law::fit(law::read_runs_file(file), file, {.delta = 1e-4, .threads = sys::default_threads()});
}

ordered_json study_json(const GemstonesArgs& o, const Study& s) {
  const law::Range e = entropy_interval(s.fit);
  ordered_json j = {{"entropy", s.entropy},
                    {"E", s.fit.law.irreducible()},
                    {"E_interval", {e.low, e.high}},
                    {"alpha", s.fit.law.alpha},
                    {"beta", s.fit.law.beta},
                    {"runs", s.fit.runs},
                    {"rows", s.fit.rows},
                    {"rms", s.fit.rms},
                    {"left_out_rms", s.fit.left_out.rms},
                    {"largest", s.largest},
                    {"times_larger", s.largest / s.next}};
  for (const Predicted& p : s.predicted)
    j["predicted"].push_back(
        {{"tokens", p.row.tokens}, {"measured", p.row.loss}, {"predicted", p.loss}, {"error", p.error()}});
  for (const PublishedFit& p : kPublishedFits) {
    j["published"].push_back({{"rows", p.rows}, {"alpha", p.alpha}, {"beta", p.beta}, {"log_e", p.log_e}});
    if (const auto ours = refit(o, p))
      j["published"].back()["ours"] = {
          {"alpha", ours->law.alpha}, {"beta", ours->law.beta}, {"log_e", ours->law.log_e}};
  }
  return j;
}

void print_study(const GemstonesArgs& o, const Study& s) {
  using report::Align, report::count;
  const law::Range e = entropy_interval(s.fit);
  fmt::print("fitted to {} rows of {} runs: alpha {:.3f}, beta {:.3f}, error {:.2f}% rms, {:.2f}% on a size left out\n",
             s.fit.rows, s.fit.runs, s.fit.law.alpha, s.fit.law.beta, 100 * s.fit.rms, 100 * s.fit.left_out.rms);
  fmt::print("E {:.4f} (95% {:.4f} to {:.4f}); the entropy of the source is {:.4f}\n\n", s.fit.law.irreducible(), e.low,
             e.high, s.entropy);
  report::Table rows(
      {{fmt::format("{} parameters, {:.2g} times the largest fitted", count(s.largest), s.largest / s.next)},
       {"tokens", Align::right},
       {"measured", Align::right},
       {"predicted", Align::right},
       {"error", Align::right}});
  for (const Predicted& p : s.predicted)
    rows.row({"", count(p.row.tokens), fmt::format("{:.4f}", p.row.loss), fmt::format("{:.4f}", p.loss),
              fmt::format("{:+.2f}%", 100 * p.error())});
  fmt::print("{}\n", rows.plain());
  for (const PublishedFit& p : kPublishedFits) {
    fmt::print("Gemstones, {} (quoted): alpha {:.3f}, beta {:.3f}, ln E {:.3f}; by the hull N over C {:.3f}\n", p.rows,
               p.alpha, p.beta, p.log_e, p.hull);
    if (const auto ours = refit(o, p))
      fmt::print("  ours of its rows: alpha {:.3f}, beta {:.3f}, ln E {:.3f}{}\n", ours->law.alpha, ours->law.beta,
                 ours->law.log_e,
                 ours->frontier ? fmt::format("; by the hull {:.3f}", ours->frontier->params.exponent) : "");
  }
}

int repro_gemstones(const GemstonesArgs& o) {
  check_range("--steps", o.steps, 2, 10'000'000);
  check_range("--points", o.points, 1, 30);
  check_range("--threads", o.threads, 0, 1024);
  if (!o.runs.empty() && !o.csv.empty())
    fail("--csv", {.what = "writes the rows of a sweep, but --runs has them", .hint = "leaving one out"});
  if (!o.csv.empty()) io::check_new_file(o.csv, ".csv");
  if (!o.svg.empty()) io::check_new_file(o.svg, ".svg");
  if (o.runs.empty()) {
    if (const int code = train_study(o); code != 0) return code;
  }
  const std::string table = o.runs.empty() ? (fs::path(o.dir) / "runs.csv").string() : o.runs;
  const Study study = study_of(table);
  if (!o.csv.empty()) io::write_text_file(o.csv, csv_of(rows_in(o.dir)));
  if (!o.svg.empty()) io::write_text_file(o.svg, picture(study));
  if (o.json)
    fmt::print("{}\n", study_json(o, study).dump());
  else
    print_study(o, study);
  return 0;
}

}  // namespace

Action setup_repro_gemstones(Cli& cli) {
  auto o = std::make_shared<GemstonesArgs>();
  cli.option("--dir FOLDER", o->dir, "of the sweep; one that was stopped goes on there");
  cli.option("--grid GRID", o->grid, "widths and depths; the largest is predicted");
  cli.says(kUsualGrid);
  cli.option("--steps", o->steps, "of the longest run, of 1,024 tokens");
  cli.option("--points", o->points, "rows of a run: at all steps, half of them, a quarter ...");
  cli.option("--runs RUNS.csv", o->runs, "of such a sweep: nothing is trained");
  cli.option("--published FOLDER", o->published, "with gemstones-hot.csv, the published rows, to fit them too");
  cli.option("--csv FILE", o->csv, "write the rows of the sweep");
  cli.option("--svg FILE", o->svg, "write losses, prediction and entropy over tokens");
  cli.option("-t,--threads", o->threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_gemstones(*o); };
}

}  // namespace braid::apps
