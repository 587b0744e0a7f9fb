#include "apps/bench_tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "apps/bench_tune_training.h"
#include "apps/model_args.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "report/table.h"
#include "sys/env.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/profile.h"
#include "sys/read.h"
#include "tune/tune.h"

namespace braid::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using report::Align;

constexpr std::string_view kFirstLine = "# Written by braid bench --tune";
constexpr int64_t kUnitRows[] = {1, 64, 512};

fs::path profile_to_write() {
  const fs::path path = sys::profile_path();
  if (path.empty()) fail("--tune", {.what = "there is no place for a profile", .hint = "BRAID_PROFILE=FILE, or HOME"});
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
    return path;
  }
  constexpr size_t kBytes = 64 << 10;
  const std::string text = sys::read_file(path, kBytes);
  if (!text.empty() && !text.starts_with(kFirstLine))
    fail("--tune", {.what = "would replace a profile that was written by hand",
                    .got = printable(path.string()),
                    .hint = "BRAID_PROFILE=FILE with an empty file"});
  return path;
}

// The matrices of products, by shape and format: the few that most of the bytes have.
std::vector<tune::Matrices> matrices_of(engine::Runner& runner) {
  constexpr size_t kMost = 5;
  std::map<std::tuple<int64_t, int64_t, int, int, bool>, tune::Matrices> groups;
  for (const Param* p : runner.model().params()) {
    const ParamRole r = p->role;
    if (!is_matrix(r) || r == ParamRole::embedding || r == ParamRole::positions || r == ParamRole::router) continue;
    const Weight& w = p->value;
    const int64_t parts = p->experts > 0 && p->expert < 0 ? p->experts : 1;  // a stack is that of all experts
    for (int64_t i = 0; i < parts && w; ++i) {
      const Weight part = w.rows_of(i * (w.rows / parts), w.rows / parts);
      tune::Matrices& group = groups[{part.rows, part.cols, static_cast<int>(part.spec.format),
                                      static_cast<int>(part.spec.ggml), p->experts > 0}];
      group.experts = p->experts > 0;
      group.weights.push_back(part);
    }
  }
  std::vector<tune::Matrices> all;
  all.reserve(groups.size());
  for (auto& [key, group] : groups) all.push_back(std::move(group));
  const auto bytes = [](const tune::Matrices& m) { return m.weights[0].bytes() * std::ssize(m.weights); };
  std::ranges::stable_sort(all, [&](const auto& a, const auto& b) { return bytes(a) > bytes(b); });
  if (all.size() > kMost) all.resize(kMost);
  return all;
}

// The units of products by format of the weights: which runs, and how long each takes.
struct Units {
  std::string format;
  std::vector<tune::UnitTime> times;
};
std::vector<Units> units_of(const std::vector<tune::Matrices>& model, const tune::Options& options) {
  std::map<std::string, std::vector<tune::Matrices>> formats;
  for (const tune::Matrices& m : model) formats[name_of(m.weights[0].spec)].push_back(m);
  std::vector<Units> all;
  for (const auto& [format, matrices] : formats) {
    Units units{format, {}};
    for (const int64_t rows : kUnitRows) {
      const std::vector<tune::UnitTime> more = tune::units(matrices, options, rows);
      units.times.insert(units.times.end(), more.begin(), more.end());
    }
    all.push_back(std::move(units));
  }
  return all;
}

// How many times as fast as the unit that runs.
double gain_of(const tune::UnitTime& time, const std::vector<tune::UnitTime>& times) {
  for (const tune::UnitTime& t : times) {
    if (t.taken && t.rows == time.rows) return t.us / time.us;
  }
  return 1;
}

std::string points_text(const tune::Finding& f) {
  std::vector<std::string> texts;
  for (const tune::Point& p : f.points) texts.push_back(fmt::format("{}: {:.2f}", p.rows, p.ratio));
  return texts.empty() ? "not asked here" : fmt::format("{}", fmt::join(texts, ", "));
}

// What one run measured.
struct Measured {
  std::vector<tune::Finding> findings{};
  std::vector<Units> units{};
  std::vector<tune::BlockingFinding> training{};
};

std::string profile_text(const std::string& model, const Measured& measured) {
  std::string text =
      fmt::format("{} (docs/benchmarks.md) on {}: sizes that change the time and no bit.\nmachine = {}\n", kFirstLine,
                  printable(model), sys::machine_line(sys::env().cpu));
  for (const tune::Finding& f : measured.findings) {
    if (f.chosen == f.initial) {
      text += fmt::format("# {} = {}: the default{}\n", f.threshold->name, f.initial,
                          f.points.empty() ? ", not timed" : "");
    } else {
      text += fmt::format("{} = {}  # default {}; {:.2f} times as fast between them\n", f.threshold->name, f.chosen,
                          f.initial, f.gain);
    }
  }
  text += blocking_lines(measured.training);
  for (const Units& u : measured.units) {
    for (const tune::UnitTime& t : u.times) {
      if (const double gain = gain_of(t, u.times); gain >= tune::kClassGain)
        text +=
            fmt::format("# linear_fwd = {}: {:.2f} times as fast with {} rows and {}; class {}, which has other bits\n",
                        t.row, gain, t.rows, u.format, t.numerics);
    }
  }
  return text;
}

void print_json(const fs::path& path, const Measured& measured) {
  ordered_json all = {{"profile", path.string()},
                      {"machine", sys::machine_line(sys::env().cpu)},
                      {"thresholds", ordered_json::array()},
                      {"units", ordered_json::array()},
                      {"training", blocking_list(measured.training)}};
  for (const tune::Finding& f : measured.findings) {
    ordered_json points = ordered_json::array();
    for (const tune::Point& p : f.points) points.push_back({{"rows", p.rows}, {"ratio", p.ratio}});
    all["thresholds"].push_back({{"name", f.threshold->name},
                                 {"default", f.initial},
                                 {"chosen", f.chosen},
                                 {"gain", f.gain},
                                 {"points", points}});
  }
  for (const Units& u : measured.units) {
    for (const tune::UnitTime& t : u.times)
      all["units"].push_back({{"format", u.format},
                              {"row", t.row},
                              {"numerics", t.numerics},
                              {"rows", t.rows},
                              {"us", t.us},
                              {"taken", t.taken}});
  }
  fmt::print("{}\n", all.dump());
}

void print_tables(const fs::path& path, const Measured& measured) {
  report::Table thresholds({{"threshold"},
                            {"default", Align::right},
                            {"chosen", Align::right},
                            {"gain", Align::right},
                            {"time of the way above over the one below, by rows"}});
  for (const tune::Finding& f : measured.findings)
    thresholds.row({f.threshold->name, fmt::to_string(f.initial), fmt::to_string(f.chosen),
                    f.chosen == f.initial ? "-" : fmt::format("{:.2f}", f.gain), points_text(f)});
  report::Table rows({{"weights"},
                      {"rows of x", Align::right},
                      {"row of linear_fwd"},
                      {"numerics"},
                      {"us", Align::right},
                      {"against the one taken", Align::right}});
  for (const Units& u : measured.units) {
    for (const tune::UnitTime& t : u.times)
      rows.row({u.format, fmt::to_string(t.rows), t.row, t.numerics, fmt::format("{:.0f}", t.us),
                t.taken ? "taken" : fmt::format("{:.2f}", gain_of(t, u.times))});
  }
  std::string training = blocking_table(measured.training);
  if (!training.empty()) training += "\n";
  fmt::print("{}\n{}\n{}{}\nwritten to {}; without that file the defaults hold again\n", thresholds.plain(),
             rows.plain(), training, tune::summary_of(measured.findings), printable(path.string()));
}

}  // namespace

int bench_tune(engine::LanguageModel& model, int rounds, int64_t train_tokens, bool json) {
  const fs::path path = profile_to_write();
  engine::Runner& runner = model.runner();
  const Numerics& numerics = runner.options().numerics;
  const tune::Options options{
      .threads = runner.options().threads > 0 ? runner.options().threads : sys::default_threads(),
      .rounds = rounds,
      .x = numerics.products,
      .codes = numerics.int8 ? CodeDots::a8 : CodeDots::none};
  const std::vector<tune::Matrices> matrices = matrices_of(runner);
  if (double load = 0; getloadavg(&load, 1) == 1 && load > sys::machine().cores)
    fmt::print(stderr, "note: the machine is busy (load {:.1f}, {} cores): what is chosen may be noise\n", load,
               sys::machine().cores);
  std::optional<report::Progress> progress;
  const auto show = [&](const char* what) {
    progress.reset();
    return [&progress, what](int64_t done, int64_t total) {
      if (!progress) progress.emplace(what, total);
      progress->at(done);
    };
  };
  Measured measured{.findings = tune::tune(matrices, options, show("tuning")), .units = units_of(matrices, options)};
  if (train_tokens > 0) measured.training = tune_training(runner, train_tokens, options, show("blocking"));
  progress.reset();
  io::write_text_file(path, profile_text(model.path().name, measured));
  json ? print_json(path, measured) : print_tables(path, measured);
  return 0;
}

void print_thresholds() {
  const auto &profile = sys::env().profile_rows, &forced = sys::env().forced_rows;
  report::Table table({{"threshold"}, {"rows"}, {"up to that"}, {"beyond"}, {"default"}, {"from"}});
  const Thresholds defaults;
  for (const Threshold& t : threshold_table()) {
    const char* from = forced.contains(t.name) ? "BRAID_OP" : profile.contains(t.name) ? "the profile" : "default";
    table.row(
        {t.name, fmt::to_string(thresholds().*t.value), t.below, t.above, fmt::to_string(defaults.*t.value), from});
  }
  fmt::print("\n{}", table.markdown());
  print_blockings();
}

}  // namespace braid::apps
