// braid repro recompute: what recomputing activations costs and saves. The published account first, at its own shapes:
// tensor parallelism with sequence parallelism and selective recomputation against tensor parallelism alone. Then a
// step of a model on this machine, under each policy in turn, so that whatever else the machine does meets all alike.
//   https://arxiv.org/abs/2205.05198
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "plan/memory.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/interrupt.h"
#include "train/language.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct RecomputeArgs {
  std::string config = "hybrid-8.5m", dir = "recompute", dtype = "bf16";
  int64_t length = 512, batch = 1, rounds = 7, threads = 0;
  bool json = false;
};
constexpr const char* kPolicies[] = {"none", "selective", "full"};

// A model in training under one policy, and the seconds of its passes.
struct Policy {
  std::string name;
  train::Recipe recipe;
  std::unique_ptr<train::Language> language;
  std::vector<double> seconds;

  double fastest() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

train::Recipe recipe_of(const RecomputeArgs& o, const char* policy) {
  ordered_json root = {{"config", o.config}, {"out", (fs::absolute(o.dir) / policy).string()},
                       {"dtype", o.dtype},   {"steps", 1},
                       {"batch", o.batch},   {"length", o.length}};
  root["data"] = {{"kind", "markov"}};
  root["memory"] = {{"recompute", policy}};
  return train::read_recipe(io::Json::parse(root.dump(), "braid repro recompute"));
}

// Forward and backward of one batch, each policy once a round; the first round warms up.
std::vector<std::unique_ptr<Policy>> measured(const RecomputeArgs& o, Ctx& ctx) {
  std::vector<std::unique_ptr<Policy>> policies;
  for (const char* name : kPolicies) {
    auto& p = *policies.emplace_back(std::make_unique<Policy>(Policy{name, recipe_of(o, name), nullptr, {}}));
    p.language = std::make_unique<train::Language>(p.recipe, ctx);
    p.language->draw(0, false);
  }
  report::Progress progress("timing", o.rounds + 1);
  for (int64_t round = 0; round <= o.rounds && sys::caught_signal() == 0; ++round) {
    progress.at(round);
    for (const auto& p : policies) {
      train::Sums sums;
      const auto begin = std::chrono::steady_clock::now();
      p->language->run(ctx, 0, o.batch, true, sums);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (round > 0) p->seconds.push_back(took.count());
    }
  }
  return policies;
}

ordered_json published_account() {
  ordered_json rows = ordered_json::array();
  for (const plan::PaperShape& shape : plan::paper_shapes()) {
    const models::Config config = config_of(shape);
    const auto bytes = [&](Recompute::Kind kind, bool sequence) {
      return plan::classic_layer_bytes(config, plan::kPaperLength, kind, {.tensor = 8, .sequence = sequence}) *
             static_cast<double>(plan::kPaperLength);
    };
    const double base = bytes(Recompute::Kind::none, false), both = bytes(Recompute::Kind::selective, true);
    rows.push_back({{"shape", shape.name}, {"layer_bytes", base}, {"with_both", both}, {"reduction", base / both}});
  }
  return rows;
}

ordered_json measured_rows(const std::vector<std::unique_ptr<Policy>>& policies) {
  ordered_json rows = ordered_json::array();
  for (const auto& p : policies) {
    const StepPlan& plan = p->language->plan();
    rows.push_back({{"recompute", p->name},
                    {"arena_bytes", plan.arena.bytes},
                    {"flops_again", plan.flops_again / plan.flops},
                    {"seconds", p->fastest()},
                    {"overhead", p->fastest() / policies[0]->fastest() - 1}});
  }
  return rows;
}

void print_text(const RecomputeArgs& o, const ordered_json& paper, const ordered_json& rows) {
  using report::Align;
  const auto size = [](const ordered_json& j) { return report::bytes(static_cast<int64_t>(j.get<double>())); };
  report::Table published(
      {{"GPT, a layer"}, {"TP 8", Align::right}, {"+ SP, selective", Align::right}, {"less", Align::right}});
  for (const auto& row : paper)
    published.row({row["shape"], size(row["layer_bytes"]), size(row["with_both"]),
                   fmt::format("{:.1f}x", row["reduction"].get<double>())});
  report::Table here({{"recompute"},
                      {"memory", Align::right},
                      {"operations again", Align::right},
                      {"time", Align::right},
                      {"more time", Align::right}});
  for (const auto& row : rows)
    here.row({row["recompute"], size(row["arena_bytes"]),
              fmt::format("{:.1f}%", 100 * row["flops_again"].get<double>()),
              fmt::format("{:.0f} ms", 1e3 * row["seconds"].get<double>()),
              fmt::format("{:.1f}%", 100 * row["overhead"].get<double>())});
  fmt::print("activations by formula; the paper says 5x less\n{}\n", published.plain());
  fmt::print("{}, {} x {} tokens, {}: forward and backward, measured, the fastest of {} rounds in turns\n{}", o.config,
             o.batch, o.length, o.dtype, o.rounds, here.plain());
  const double full = rows[2]["overhead"], selective = rows[1]["overhead"];
  if (full > 0)
    fmt::print("selective saves {:.0f}% of what full costs; the paper says over 90%\n", 100 * (1 - selective / full));
}

int repro_recompute(const RecomputeArgs& o) {
  check_range("--length", o.length, 2, 1 << 20);
  check_range("--batch", o.batch, 1, 1024);
  check_range("--rounds", o.rounds, 1, 1000);
  check_range("--threads", o.threads, 0, 1024);
  io::check_parent(o.dir);
  io::check_new_folder(o.dir);
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  Arena arena;
  Ctx ctx{.arena = arena};
  if (o.threads > 0) ctx.threads = static_cast<int>(o.threads);
  const auto policies = measured(o, ctx);
  if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
  const ordered_json paper = published_account(), rows = measured_rows(policies);
  if (o.json)
    fmt::print("{}\n", ordered_json{{"config", o.config},
                                    {"batch", o.batch},
                                    {"length", o.length},
                                    {"dtype", o.dtype},
                                    {"published_shapes", paper},
                                    {"measured", rows}}
                           .dump());
  else
    print_text(o, paper, rows);
  return 0;
}

}  // namespace

Action setup_repro_recompute(Cli& cli) {
  auto o = std::make_shared<RecomputeArgs>();
  cli.option("--config", o->config, "the model that is timed: a shape of braid new, or a config.json");
  cli.option("--dir FOLDER", o->dir, "a new one, for its random weights");
  cli.option("--length", o->length, "tokens of a sequence");
  cli.option("-b,--batch", o->batch, "sequences of a pass");
  cli.choice("--dtype", o->dtype, {"f32", "bf16"}, "dtype of the operands of matrix products");
  cli.option("--rounds", o->rounds, "passes under each policy, after a warm-up");
  cli.option("-t,--threads", o->threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_recompute(*o); };
}

}  // namespace braid::apps
