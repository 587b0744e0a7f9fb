// braid repro alcop: on a GPU, every shape of the pipelined main loop of products with groups of rows, the model that
// ranks them, and cuBLASLt's dense product beside the fastest; on a CPU, every blocking of training products, and the
// model that ranks these (alcop_cpu.h).
//   ALCOP (arXiv 2210.16691): 1.23 times as fast as without pipelines, 99% of the best with 40 times fewer trials
//   Shfl-BW (arXiv 2203.05016): 1.8 to 4.2 times as fast as dense products at a density of 0.25, on a V100, T4 and A100
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/alcop_cpu.h"
#include "apps/alcop_report.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "core/device/gpu.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

struct ReproAlcopArgs {
  std::vector<int64_t> heights = {64, 128};
  std::vector<int64_t> percents = {5, 10, 25, 50, 100};
  std::string device = "cuda", times, csv, svg;
  int64_t rounds = 0;
  bool quick = false, json = false;
};

// Layers of Llama 3 8B and Nemotron 3 Nano, one by many numbers of tokens, and a square product.
std::vector<GroupedCase> alcop_shapes(bool quick) {
  if (quick) return {{.rows = 1856, .cols = 2688, .tokens = 512}};
  return {{.rows = 4096, .cols = 4096, .tokens = 16},    {.rows = 4096, .cols = 4096, .tokens = 128},
          {.rows = 4096, .cols = 4096, .tokens = 512},   {.rows = 4096, .cols = 4096, .tokens = 2048},
          {.rows = 4096, .cols = 4096, .tokens = 8192},  {.rows = 14336, .cols = 4096, .tokens = 2048},
          {.rows = 4096, .cols = 14336, .tokens = 2048}, {.rows = 1856, .cols = 2688, .tokens = 1024},
          {.rows = 10304, .cols = 2688, .tokens = 4096}, {.rows = 8192, .cols = 8192, .tokens = 4096}};
}

AlcopStudy measure_alcop(ReproAlcopArgs o) {
  for (const int64_t height : o.heights) {
    if (height != 16 && height != 32 && height != 64 && height != 128)
      fail("--heights", {.what = "no such groups", .got = fmt::format("{}", height), .expected = "16, 32, 64, 128"});
  }
  if (o.heights.empty()) fail("--heights", {.what = "is empty", .expected = "rows of a group, as 64,128"});
  std::sort(o.percents.begin(), o.percents.end());
  for (const int64_t percent : o.percents) check_range("--densities", percent, 1, 100);
  if (o.percents.empty()) fail("--densities", {.what = "is empty", .expected = "percentages, as 25,50,100"});
  if (o.rounds == 0) o.rounds = 9;
  check_range("--rounds", o.rounds, 1, 1000);
  const std::vector<Gpu> all = gpus();
  if (all.empty()) {
    fail_environment("repro alcop", {.what = "there is nothing to measure",
                                     .got = "no GPU, or a build without CUDA",
                                     .hint = "--device cpu, or stored times, --times bench/results/alcop-h200.csv"});
  }
  std::vector<GroupedCase> cases;
  for (const GroupedCase& shape : alcop_shapes(o.quick)) {
    for (const int64_t height : o.heights) {
      for (const int64_t percent : o.percents) {
        cases.push_back(shape);
        cases.back().height = height;
        cases.back().density = static_cast<double>(percent) / 100;
      }
    }
  }
  AlcopStudy study{.gpu = all[0], .roofs = measure_gpu_roofs(all[0].number), .rounds = o.rounds};
  report::Progress progress("timing", std::ssize(cases));
  study.cases = time_grouped(cases, static_cast<int>(o.rounds), study.roofs, [&](int64_t done) { progress.at(done); });
  return study;
}

int repro_on_cpu(const ReproAlcopArgs& o) {
  const ReproAlcopArgs plain;
  refuse_unread("--device cpu", {{"--heights", o.heights != plain.heights},
                                 {"--densities", o.percents != plain.percents},
                                 {"--times", !o.times.empty()}});
  constexpr int64_t kRounds = 3;  // five minutes
  if (o.rounds != 0) check_range("--rounds", o.rounds, 1, 1000);
  const BlockingStudy study = study_blockings(o.rounds > 0 ? o.rounds : kRounds, o.quick);
  if (!o.csv.empty()) io::write_text_file(o.csv, blocking_csv(study));
  if (!o.svg.empty()) io::write_text_file(o.svg, blocking_svg(study));
  fmt::print("{}\n", o.json ? blocking_json(study) : blocking_text(study));
  return 0;
}

int repro_alcop(const ReproAlcopArgs& o) {
  if (!o.csv.empty()) io::check_new_file(o.csv, ".csv");
  if (!o.svg.empty()) io::check_new_file(o.svg, ".svg");
  if (o.device != "cpu" && o.device != "cuda")
    fail("--device", {.what = "no such device", .got = printable(o.device), .expected = "cpu or cuda"});
  if (o.device == "cpu") return repro_on_cpu(o);
  const ReproAlcopArgs plain;
  if (!o.times.empty())
    refuse_unread("--times", {{"--heights", o.heights != plain.heights},
                              {"--densities", o.percents != plain.percents},
                              {"--rounds", o.rounds != plain.rounds},
                              {"--quick", o.quick}});
  const AlcopStudy study = o.times.empty() ? measure_alcop(o) : read_alcop_csv(o.times);
  if (!o.csv.empty()) io::write_text_file(o.csv, alcop_csv(study));
  if (!o.svg.empty()) io::write_text_file(o.svg, alcop_svg(study));
  fmt::print("{}\n", o.json ? alcop_json(study) : alcop_text(study));
  return 0;
}

}  // namespace

Action setup_repro_alcop(Cli& cli) {
  auto o = std::make_shared<ReproAlcopArgs>();
  cli.option("--device", o->device, "cuda; or cpu, one thread: blockings of training products");
  cli.option("--heights", o->heights, "rows of a group, a list of 16, 32, 64, 128");
  cli.option("--densities", o->percents, "percentages of the columns that a group has, a list");
  cli.option("--rounds", o->rounds, "rounds, each of which runs every program once; 9, with cpu 3");
  cli.option("--times FILE", o->times, "of an earlier --csv of a GPU: only the model is computed");
  cli.option("--csv FILE", o->csv, "write every time, modelled ones too");
  cli.option("--svg FILE", o->svg, "write a plot of what choices lose by trials");
  cli.flag("--quick", o->quick, "one product");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_alcop(*o); };
}

}  // namespace braid::apps
