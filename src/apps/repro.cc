// braid repro nemotron3-nano: the throughput that the Nemotron 3 Nano paper claims over Qwen3-30B-A3B with prompts of
// 8K tokens and answers of 16K, on this machine. Weights are random. A whole run would take days, so its parts are
// timed: a pass of the prompt at its mean depth, steps of a batch at theirs. Both times grow linearly with the depth,
// so the mean depth gives the mean time.
//   https://arxiv.org/abs/2512.20848 (3.3 times, on one H200 in FP8)
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/bench_runs.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/new_folder.h"
#include "apps/version.h"
#include "io/ordered_json.h"
#include "models/presets.h"
#include "plan/floor.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/machine.h"
#include "sys/memory.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;

struct ReproArgs {
  std::string shapes[2] = {"nemotron-3-nano-30b-a3b", "qwen3-30b-a3b"}, folder = ".", format = "nvfp4";
  ModelArgs numbers;
  std::vector<int64_t> batches = {1, 2, 4, 8, 16};
  int64_t prompt = 8192, generate = 16384;
  Repeats repeats{.count = 3};
  bool json = false;
  int64_t prompt_pass() const { return std::min<int64_t>(512, prompt); }  // tokens of the prompt that are timed
};

constexpr int64_t kTimedSteps = 4;  // that are timed
// One shape with one batch. Nothing was measured where its weights and states exceed the memory.
struct Cell {
  int64_t need = 0;                                       // bytes of weights and states
  double prompt_rate = 0, step = 0;                       // tokens a second; seconds
  double floor = 0, weights = 0, caches = 0;              // of a step: least seconds, bytes that it must read
  double rate(const ReproArgs& o, int64_t batch) const {  // tokens generated a second
    const auto n = static_cast<double>(batch), each = static_cast<double>(o.generate);
    return step > 0 ? n * each / (n * static_cast<double>(o.prompt) / prompt_rate + each * step) : 0;
  }
};

struct Stopped {};  // by a signal

// The depth nearest to `depth` of which few tokens need to be read (BenchRow::depth): 64 and copies of them.
int64_t quick_depth(int64_t depth) {
  constexpr int64_t kGrain = 512, kRead = 64;
  return depth < kGrain ? depth : (depth + kGrain / 2 - kRead) / kGrain * kGrain + kRead;
}

BenchRow step_row(const ReproArgs& o, int64_t batch) {
  return {.generate = kTimedSteps, .depth = quick_depth(o.prompt + o.generate / 2), .sequences = batch};
}

engine::RunnerOptions runner_options(const ReproArgs& o, int64_t batch) {
  engine::RunnerOptions options = o.numbers.runner_options();
  options.sequences = batch;
  options.context = std::max(o.prompt + o.generate, step_row(o, batch).depth + kTimedSteps) + 1;
  options.beyond_training = true;
  return options;
}

double seconds(engine::Runner& runner, BenchRow& row, const sys::ReadRate& memory, const Repeats& repeats) {
  measure(runner, row, &memory, repeats);
  if (sys::caught_signal() != 0) throw Stopped();
  return 1e-9 * row.median_ns();
}

struct Bytes {  // states: of one sequence
  int64_t weights = 0, states = 0;
};
Bytes step_bytes(const ReproArgs& o, const fs::path& folder) {
  engine::RunnerOptions options = runner_options(o, 1);
  const int64_t context = std::exchange(options.context, 64);
  engine::LanguageModel model(folder.string(), options);
  const auto& numerics = model.runner().options().numerics;
  const engine::SequenceBytes each =
      engine::sequence_bytes(model.runner().model().state_shapes(), numerics.caches(), numerics.exact);
  Bytes bytes{.states = each.fixed + context * each.per_token};
  for (const Param* p : model.runner().model().params()) bytes.weights += p->value.bytes();
  return bytes;
}

void count_bytes(models::Model& model, const plan::Pass& pass, Cell& cell) {
  for (const plan::Work& w : plan::work_of(model, pass)) {
    const bool carried = w.kind == plan::WorkKind::state || w.kind == plan::WorkKind::keys_and_values;
    (carried ? cell.caches : cell.weights) += w.bytes;
  }
}

std::vector<Cell> measure_shape(const ReproArgs& o, const fs::path& folder, const sys::ReadRate& memory) {
  const Bytes bytes = step_bytes(o, folder);
  const int64_t available = sys::memory_available();
  std::vector<Cell> cells;
  double prompt_rate = 0;
  for (const int64_t batch : o.batches) {
    Cell& cell = cells.emplace_back();
    cell.need = bytes.weights + batch * bytes.states;
    if (cell.need > available) continue;
    engine::LanguageModel model(folder.string(), runner_options(o, batch));
    if (prompt_rate == 0) {
      BenchRow row{.prompt = o.prompt_pass(), .depth = (o.prompt - o.prompt_pass()) / 2};
      prompt_rate = static_cast<double>(row.prompt) / seconds(model.runner(), row, memory, o.repeats);
    }
    BenchRow row = step_row(o, batch);
    cell.prompt_rate = prompt_rate;
    cell.step = seconds(model.runner(), row, memory, o.repeats) / static_cast<double>(kTimedSteps);
    cell.floor = row.floor_seconds / static_cast<double>(kTimedSteps);
    count_bytes(model.runner().model(),
                {.sequences = batch,
                 .depth = row.depth + kTimedSteps / 2,
                 .logits_rows = batch,
                 .caches = model.runner().options().numerics.caches()},
                cell);
  }
  return cells;
}

std::string text_of(const Cell& cell, double rate) {
  if (rate == 0) return fmt::format("needs {}", report::bytes(cell.need));
  return fmt::format("{:.2f} ({:.0f}%; {:.2f} + {:.2f} GB)", rate, 100 * cell.floor / cell.step, cell.weights / 1e9,
                     cell.caches / 1e9);
}

void print_table(const ReproArgs& o, const std::vector<Cell> (&cells)[2]) {
  using report::Align;
  report::Table table(
      {{"batch", Align::right}, {o.shapes[0], Align::right}, {o.shapes[1], Align::right}, {"ratio", Align::right}});
  double best[2] = {}, prompts[2] = {};
  for (size_t i = 0; i < o.batches.size(); ++i) {
    double rates[2];
    for (const int side : {0, 1}) {
      const Cell& cell = cells[side][i];
      rates[side] = cell.rate(o, o.batches[i]);
      best[side] = std::max(best[side], rates[side]);
      prompts[side] = std::max(prompts[side], cell.prompt_rate);
    }
    table.row({std::to_string(o.batches[i]), text_of(cells[0][i], rates[0]), text_of(cells[1][i], rates[1]),
               rates[0] > 0 && rates[1] > 0 ? fmt::format("{:.2f}", rates[0] / rates[1]) : "-"});
  }
  fmt::print("{}\n", table.markdown());
  fmt::print(
      "Tokens generated a second with prompts of {} and answers of {}, composed from passes timed at mean depths, on "
      "{} "
      "threads; random weights in {}. In brackets the share of a step's floor, and the bytes that it must read: "
      "weights "
      "+ states. Prompts: {:.1f} and {:.1f} tokens a second.\n",
      o.prompt, o.generate, sys::roofs().threads, o.format, prompts[0], prompts[1]);
  if (best[0] > 0 && best[1] > 0)
    fmt::print("Best of these batches against best of these: {:.2f}. Published: 3.3, on one H200 in FP8.\n",
               best[0] / best[1]);
}

void print_json(const ReproArgs& o, const std::vector<Cell> (&cells)[2]) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int side : {0, 1}) {
    for (size_t i = 0; i < o.batches.size(); ++i) {
      const Cell& c = cells[side][i];
      rows.push_back({{"shape", o.shapes[side]},
                      {"batch", o.batches[i]},
                      {"bytes_needed", c.need},
                      {"tokens_per_second", c.rate(o, o.batches[i])},
                      {"prompt_tokens_per_second", c.prompt_rate},
                      {"step_seconds", c.step},
                      {"step_floor_seconds", c.floor},
                      {"step_bytes_weights", c.weights},
                      {"step_bytes_states", c.caches}});
    }
  }
  const nlohmann::ordered_json j = {{"build_commit", build().commit},
                                    {"cpu_info", sys::machine().cpu_name},
                                    {"threads", sys::roofs().threads},
                                    {"read_gbs", sys::roofs().read_gbs},
                                    {"prompt", o.prompt},
                                    {"generate", o.generate},
                                    {"format", o.format},
                                    {"activations", o.numbers.activations},
                                    {"rows", std::move(rows)}};
  fmt::print("{}\n", io::dumped(j, 1));
}

// Both models, written if missing: a folder with a config.json is complete.
int make_folders(const ReproArgs& o, fs::path (&folders)[2]) {
  for (const int side : {0, 1}) {
    fs::path name = fs::path(models::find_config(o.shapes[side]).name).filename();
    if (name.extension() == ".json" || name.extension() == ".gguf") name.replace_extension();
    folders[side] = fs::path(o.folder) / (name.string() + "-" + o.format);
  }
  if (folders[0] == folders[1])
    fail("--beside", {.what = "both shapes have one name", .got = printable(folders[1].string())});
  for (const int side : {0, 1}) {
    std::error_code failed;
    if (fs::exists(folders[side] / "config.json", failed)) continue;
    const NewFolder what{.config = o.shapes[side], .format = o.format};
    if (const int code = write_new_folder(what, folders[side], stderr); code != 0) return code;
    if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
  }
  return 0;
}

int repro(const ReproArgs& o) {
  for (const int64_t batch : o.batches) check_range("--batch", batch, 1, 256);
  check_range("--n-prompt", o.prompt, 64, 1 << 24);
  check_range("--n-gen", o.generate, kTimedSteps, 1 << 24);
  check_range("--repetitions", o.repeats.count, 1, 1000);
  runner_options(o, 1);  // refuses options that do not go together before anything is written
  fs::path folders[2];
  if (const int code = make_folders(o, folders); code != 0) return code;
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  std::vector<Cell> cells[2];
  sys::roofs();  // before the buffer below: it takes one of that size, and gives it back
  const sys::ReadRate memory;
  try {
    for (const int side : {0, 1}) cells[side] = measure_shape(o, folders[side], memory);
  } catch (const Stopped&) {
    return 128 + sys::caught_signal();
  }
  o.json ? print_json(o, cells) : print_table(o, cells);
  return 0;
}

}  // namespace

Action setup_repro_nano(Cli& cli) {
  auto o = std::make_shared<ReproArgs>();
  cli.option("--shape", o->shapes[0], "as braid new takes it");
  cli.option("--beside", o->shapes[1], "the shape to compare with");
  cli.option("--dir FOLDER", o->folder, "where the two models are, or are written (36 GiB in nvfp4)");
  cli.choice("--format", o->format, {"bf16", "fp8", "nvfp4"}, "of the large matrices");
  o->numbers.declare_types(cli);
  cli.option("-p,--n-prompt", o->prompt, "tokens of a prompt");
  cli.option("-n,--n-gen", o->generate, "tokens of an answer");
  cli.option("-b,--batch", o->batches, "sequences per pass, a list");
  cli.option("-r,--repetitions", o->repeats.count, "runs after a warm-up");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro(*o); };
}

}  // namespace braid::apps
