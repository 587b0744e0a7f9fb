// braid repro nemotron3-nano: the throughput that the Nemotron 3 Nano paper claims over Qwen3-30B-A3B with prompts of
// 8K tokens and answers of 16K, on this machine. Weights are random. A whole run would take days, so its parts are
// timed: a pass of the prompt at its mean depth, steps of a batch at theirs. Both times grow linearly with the depth,
// so the mean depth gives the mean time.
//   https://arxiv.org/abs/2512.20848 (3.3 times, on one H200 in FP8)
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench_runs.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/new_folder.h"
#include "plan/floor.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/memory.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;

struct Options {
  std::string shapes[2] = {"nemotron-3-nano-30b-a3b", "qwen3-30b-a3b"}, folder = ".", format = "nvfp4";
  ModelArgs numbers;
  std::vector<int64_t> batches = {1, 2, 4, 8, 16};
  int64_t prompt = 8192, generate = 16384, steps = 4;
  Repeats repeats{.count = 3};
  bool json = false;
};

constexpr int64_t kPass = 512;  // tokens of the prompt that are timed

// One shape with one batch. Nothing was measured where its weights and states exceed the memory.
struct Cell {
  int64_t need = 0;                                     // bytes of weights and states
  double prompt_rate = 0, step = 0;                     // tokens a second; seconds
  double floor = 0, weights = 0, caches = 0;            // of a step: least seconds, bytes read
  double rate(const Options& o, int64_t batch) const {  // tokens generated a second
    const auto n = static_cast<double>(batch), each = static_cast<double>(o.generate);
    return step > 0 ? n * each / (n * static_cast<double>(o.prompt) / prompt_rate + each * step) : 0;
  }
};

engine::RunnerOptions runner_options(const Options& o, int64_t batch, int64_t context) {
  engine::RunnerOptions options = o.numbers.runner_options();
  options.sequences = batch;
  options.context = context;
  options.beyond_training = true;
  return options;
}

double seconds(const BenchRow& row) { return 1e-9 * row.median_ns(); }

// What a step reads besides the weights is what its passes name by layer.
void count_bytes(models::Model& model, const plan::Pass& pass, Cell& cell) {
  for (const plan::Work& w : plan::work_of(model, pass)) {
    const bool own = w.what.ends_with(": state") || w.what.ends_with(": keys and values");
    (own ? cell.caches : cell.weights) += w.bytes;
  }
}

std::vector<Cell> measure_shape(const Options& o, const fs::path& folder, const sys::ReadRate& memory) {
  std::vector<Cell> cells;
  const int64_t context = o.prompt + o.generate, available = sys::memory_available();
  double prompt_rate = 0;
  for (const int64_t batch : o.batches) {
    Cell& cell = cells.emplace_back();
    {  // weights are mapped, so that asking costs little
      engine::LanguageModel small(folder.string(), runner_options(o, 1, kPass));
      const engine::SequenceBytes bytes =
          engine::sequence_bytes(small.runner().model().state_shapes(), small.runner().options().numerics.caches(),
                                 small.runner().options().numerics.exact);
      cell.need = batch * (bytes.fixed + context * bytes.per_token);
      for (const Param* p : small.runner().model().params()) cell.need += p->value.bytes();
    }
    if (cell.need > available) continue;
    engine::LanguageModel model(folder.string(), runner_options(o, batch, context + 1));
    if (prompt_rate == 0) {
      BenchRow row{.prompt = std::min(kPass, o.prompt), .depth = (o.prompt - std::min(kPass, o.prompt)) / 2};
      measure(model.runner(), row, memory, o.repeats);
      prompt_rate = static_cast<double>(row.prompt) / seconds(row);
    }
    BenchRow row{.generate = o.steps, .depth = o.prompt + (o.generate - o.steps) / 2, .sequences = batch};
    measure(model.runner(), row, memory, o.repeats);
    cell.prompt_rate = prompt_rate;
    cell.step = seconds(row) / static_cast<double>(o.steps);
    cell.floor = row.floor_seconds / static_cast<double>(o.steps);
    count_bytes(model.runner().model(),
                {.sequences = batch,
                 .depth = o.prompt + o.generate / 2,
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

void print_table(const Options& o, const std::vector<Cell> (&cells)[2]) {
  using report::Align;
  report::Table table(
      {{"batch", Align::right}, {o.shapes[0], Align::right}, {o.shapes[1], Align::right}, {"ratio", Align::right}});
  double best[2] = {};
  for (size_t i = 0; i < o.batches.size(); ++i) {
    double rates[2];
    for (const int side : {0, 1}) {
      rates[side] = cells[side][i].rate(o, o.batches[i]);
      best[side] = std::max(best[side], rates[side]);
    }
    table.row({std::to_string(o.batches[i]), text_of(cells[0][i], rates[0]), text_of(cells[1][i], rates[1]),
               rates[0] > 0 && rates[1] > 0 ? fmt::format("{:.2f}", rates[0] / rates[1]) : "-"});
  }
  fmt::print("{}\n", table.markdown());
  for (const int side : {0, 1}) {
    if (best[side] > 0) fmt::print("{}: prompts at {:.1f} t/s\n", o.shapes[side], cells[side][0].prompt_rate);
  }
  fmt::print(
      "Tokens generated a second with prompts of {} and answers of {} (share of the floor of a step; what a step "
      "reads: "
      "weights + states), composed from measured passes at mean depths, random {} weights, {} threads.\n",
      o.prompt, o.generate, o.format, sys::roofs().threads);
  if (best[0] > 0 && best[1] > 0)
    fmt::print("Best batch that fits against best batch that fits: {:.2f}. Published: 3.3, on one H200 in FP8.\n",
               best[0] / best[1]);
}

void print_json(const Options& o, const std::vector<Cell> (&cells)[2]) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int side : {0, 1}) {
    for (size_t i = 0; i < o.batches.size(); ++i) {
      const Cell& c = cells[side][i];
      rows.push_back({{"shape", o.shapes[side]},
                      {"batch", o.batches[i]},
                      {"fits", c.step > 0},
                      {"bytes_needed", c.need},
                      {"tokens_per_second", c.rate(o, o.batches[i])},
                      {"prompt_tokens_per_second", c.prompt_rate},
                      {"step_seconds", c.step},
                      {"step_floor_seconds", c.floor},
                      {"step_bytes_weights", c.weights},
                      {"step_bytes_states", c.caches}});
    }
  }
  const sys::Roofs& r = sys::roofs();
  fmt::print("{}\n", nlohmann::ordered_json{{"prompt", o.prompt},
                                            {"generate", o.generate},
                                            {"format", o.format},
                                            {"activations", o.numbers.activations},
                                            {"threads", r.threads},
                                            {"read_gbs", r.read_gbs},
                                            {"rows", rows}}
                         .dump(1));
}

int repro(const Options& o) {
  for (const int64_t batch : o.batches) check_range("--batch", batch, 1, 4096);
  check_range("--n-prompt", o.prompt, 64, 1 << 24);
  check_range("--n-gen", o.generate, o.steps, 1 << 24);
  check_range("--repetitions", o.repeats.count, 1, 1000);
  std::vector<Cell> cells[2];
  sys::roofs();  // before the buffer below: it takes one of that size, and gives it back
  const sys::ReadRate memory;
  for (const int side : {0, 1}) {
    const fs::path folder = fs::path(o.folder) / (o.shapes[side] + "-" + o.format);
    if (!fs::exists(folder)) {
      NewFolder what;
      what.config = o.shapes[side], what.format = o.format;
      const int code = write_new_folder(what, folder, stderr);
      if (code != 0) return code;
    }
    cells[side] = measure_shape(o, folder, memory);
  }
  (o.json ? &print_json : &print_table)(o, cells);
  return 0;
}

}  // namespace

Action setup_repro_nano(Cli& cli) {
  auto o = std::make_shared<Options>();
  cli.option("--shape", o->shapes[0], "as braid new knows it");
  cli.option("--beside", o->shapes[1], "the shape that it is compared with");
  cli.option("--dir FOLDER", o->folder, "where the two models are, or are written (17 GiB each)");
  cli.choice("--format", o->format, {"bf16", "fp8", "nvfp4"}, "of the large matrices");
  o->numbers.declare_types(cli);
  cli.option("-p,--n-prompt", o->prompt, "tokens of a prompt");
  cli.option("-n,--n-gen", o->generate, "tokens of an answer");
  cli.option("-b,--batch", o->batches, "sequences together, a list");
  cli.option("-r,--repetitions", o->repeats.count, "runs after a warm-up");
  cli.flag("--json", o->json, "for programs");
  return [o] { return repro(*o); };
}

}  // namespace braid::apps
