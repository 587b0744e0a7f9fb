#include "apps/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "apps/bench_runs.h"
#include "apps/best_roofs.h"
#include "apps/version.h"
#include "io/ordered_json.h"
#include "math/codes_dot.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {

struct Rate {
  double mean = 0, deviation = 0;
};

Rate rate_of(const BenchRow& row) {
  Rate r;
  const auto n = static_cast<double>(row.samples_ns.size());
  for (int64_t ns : row.samples_ns) r.mean += row.tokens() / (1e-9 * static_cast<double>(ns)) / n;
  for (int64_t ns : row.samples_ns) {
    const double d = row.tokens() / (1e-9 * static_cast<double>(ns)) - r.mean;
    r.deviation += d * d / std::max(n - 1, 1.0);
  }
  r.deviation = std::sqrt(r.deviation);
  return r;
}

// The fraction of the floor; by the median, which is robust against bursts of other load.
double floor_fraction(const BenchRow& row) { return row.floor_seconds / (1e-9 * row.median_ns()); }

bool is_void(const BenchRow& row) {
  const sys::Roofs& r = row.roofs;
  const auto& [best, of_class] = best_roofs(r.threads);
  return off(r.read_gbs, best.read_gbs, of_class) || off(r.fp32_gflops, best.fp32_gflops, of_class) ||
         off(r.bf16_gflops, best.bf16_gflops, of_class) || (row.on_bytes && off(r.int8_gops, best.int8_gops, of_class));
}

const char* activations_of(const BenchRow& row, const Numerics& n) {
  return row.on_bytes ? "INT8" : name_of(n.products);
}

}  // namespace

std::string roofs_line(const sys::Roofs& r) {
  return fmt::format("read {:.1f} GB/s, FP32 {:.0f} GFLOP/s, BF16 {:.0f} GFLOP/s ({}), INT8 {:.0f} GOP/s ({}), {}",
                     r.read_gbs, r.fp32_gflops, r.bf16_gflops, r.bf16_unit, r.int8_gops, r.int8_unit,
                     report::counted(r.threads, "thread"));
}

bool on_bytes(engine::Runner& runner, bool step) {
  const Numerics& n = runner.options().numerics;
  if (!n.int8 || sys::machine().amx || (step && n.code_steps)) return false;
  const auto& params = runner.model().params();
  return std::any_of(params.begin(), params.end(), [](const Param* p) { return !codes::refusal(p->value); });
}

plan::Rates rates_of(const sys::Roofs& r, const Numerics& numerics, bool on_bytes) {
  const double real = numerics.products == DType::bf16 && r.bf16_gflops > 0 ? r.bf16_gflops : r.fp32_gflops;
  const double whole = on_bytes ? r.int8_gops : real;
  return {.read = 1e9 * r.read_gbs, .real = 1e9 * real, .whole = 1e9 * whole};
}

std::string BenchRow::test() const {
  std::string text = prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generate);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  if (sequences > 1) text += fmt::format(" x{}", sequences);
  return text;
}

double BenchRow::tokens() const { return static_cast<double>((prompt + generate) * sequences); }

double BenchRow::median_ns() const {
  std::vector<int64_t> sorted = samples_ns;
  std::sort(sorted.begin(), sorted.end());
  return static_cast<double>(sorted[(sorted.size() - 1) / 2]);
}

BenchReport::BenchReport(const std::string& form, engine::LanguageModel& model) : form_(form), model_(model) {
  for (const Param* p : model.runner().model().params()) {
    bytes_ += p->value.bytes();
    params_ += p->value.rows * p->value.cols;
  }
  if (engine::Ranks* ranks = model.runner().options().ranks)
    bytes_ = ranks->total(bytes_), params_ = ranks->total(params_);
}

std::string BenchReport::json_of(const BenchRow& row) const {
  const sys::Machine& m = sys::machine();
  const Rate rate = rate_of(row);
  const engine::RunnerOptions& o = model_.runner().options();
  std::vector<double> samples_ts;
  double mean_ns = 0, deviation_ns = 0;
  for (int64_t ns : row.samples_ns) {
    samples_ts.push_back(row.tokens() / (1e-9 * static_cast<double>(ns)));
    mean_ns += static_cast<double>(ns) / static_cast<double>(row.samples_ns.size());
  }
  for (int64_t ns : row.samples_ns)
    deviation_ns += std::pow(static_cast<double>(ns) - mean_ns, 2) /
                    std::max<double>(static_cast<double>(row.samples_ns.size()) - 1, 1);
  const std::time_t now = std::time(nullptr);
  nlohmann::ordered_json j = {{"build_commit", build().commit},
                              {"cpu_info", m.cpu_name},
                              {"cpu_class", sys::name_of(m.cpu_class)},
                              {"backends", "CPU"},
                              {"model_filename", model_.path().name},
                              {"model_type", model_.runner().config().family},
                              {"model_size", bytes_},
                              {"model_n_params", params_},
                              {"n_ubatch", o.chunk},
                              {"n_threads", model_.runner().ctx().threads},
                              {"dtype", name_of(o.numerics.products)},
                              {"activations", activations_of(row, o.numerics)},
                              {"type_k", name_of(o.numerics.caches().kv)},
                              {"type_v", name_of(o.numerics.caches().kv)},
                              {"n_prompt", row.prompt},
                              {"n_gen", row.generate},
                              {"n_depth", row.depth},
                              {"n_sequences", row.sequences},
                              {"test_time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
                              {"avg_ns", static_cast<int64_t>(mean_ns)},
                              {"stddev_ns", static_cast<int64_t>(std::sqrt(deviation_ns))},
                              {"avg_ts", rate.mean},
                              {"stddev_ts", rate.deviation},
                              {"samples_ns", row.samples_ns},
                              {"samples_ts", samples_ts}};
  if (const engine::Ranks* ranks = o.ranks) {
    const models::Division& d = ranks->division();
    j.update(
        {{"n_ranks", d.ranks()}, {"tp", d.tp}, {"pp", d.pp}, {"ep", d.ep}, {"sent_bytes_per_token", row.sent_bytes}});
    return io::dumped(j);
  }
  j.update({{"floor_ns", static_cast<int64_t>(1e9 * row.floor_seconds)},
            {"floor_fraction", floor_fraction(row)},
            {"roofs",
             {{"read_gbs", row.roofs.read_gbs},
              {"read_gbs_1", row.roofs.read_gbs_1},
              {"fp32_gflops", row.roofs.fp32_gflops},
              {"bf16_gflops", row.roofs.bf16_gflops},
              {"bf16_unit", row.roofs.bf16_unit},
              {"int8_gops", row.roofs.int8_gops}}},
            {"void", is_void(row)}});
  return io::dumped(j);
}

void BenchReport::add(const BenchRow& row) {
  rows_.push_back(row);
  if (form_ == "jsonl") fmt::print("{}\n", json_of(row));
}

// Of what they hold: parts, and what each has whole.
std::string BenchReport::ranks_line() const {
  const models::Division& d = model_.runner().options().ranks->division();
  return fmt::format("{} ranks (tp {}, pp {}, ep {}), {} each; size and params are those of all ranks together",
                     d.ranks(), d.tp, d.pp, d.ep, report::counted(model_.runner().ctx().threads, "thread"));
}

void BenchReport::finish() {
  const bool ranks = model_.runner().options().ranks != nullptr;
  if (form_ == "json") {
    fmt::print("[");
    for (size_t i = 0; i < rows_.size(); ++i) fmt::print("{}\n  {}", i ? "," : "", json_of(rows_[i]));
    fmt::print("\n]\n");
  }
  if (form_ == "md") {
    using report::Align;
    report::Table table({{"model"},
                         {"size", Align::right},
                         {"params", Align::right},
                         {"backend"},
                         {"threads", Align::right},
                         {"test", Align::right},
                         {"t/s", Align::right},
                         {ranks ? "sent/token" : "of floor", Align::right}});
    for (const BenchRow& row : rows_) {
      const Rate rate = rate_of(row);
      table.row({model_.path().name, report::bytes(bytes_), report::count(static_cast<double>(params_)),
                 fmt::format("CPU {}", activations_of(row, model_.runner().options().numerics)),
                 std::to_string(model_.runner().ctx().threads), row.test(),
                 fmt::format("{:.2f} ± {:.2f}", rate.mean, rate.deviation),
                 ranks ? report::bytes(static_cast<int64_t>(row.sent_bytes))
                       : fmt::format("{:.0f}%", 100 * floor_fraction(row))});
    }
    fmt::print("{}\n{}\n", table.markdown(), ranks ? ranks_line() : roofs_line(rows_[0].roofs));
  }
  if (ranks) return;
  const int threads = model_.runner().ctx().threads;
  if (std::any_of(rows_.begin(), rows_.end(), &is_void)) {
    const auto& [best, of_class] = best_roofs(rows_[0].roofs.threads);
    fmt::print(stderr,
               "braid: a roof is more than 10% off the best of {} ({:.0f} GB/s, FP32 {:.0f}, BF16 {:.0f}, "
               "INT8 {:.0f} G/s): this run is void\n",
               of_class ? "this class of CPU" : "this machine", best.read_gbs, best.fp32_gflops, best.bf16_gflops,
               best.int8_gops);
  }
  remember_roofs(sys::roofs(threads));
}

}  // namespace braid::apps
