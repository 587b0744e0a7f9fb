#include "apps/eval_tasks.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/tasks.h"
#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const eval::TaskScore& s) {
  const auto [low, high] = s.interval();
  return {{"right", s.right}, {"n", s.n}, {"accuracy", 100 * s.accuracy()}, {"interval", {100 * low, 100 * high}}};
}

void print(const std::vector<eval::TaskScore>& scores, const eval::TaskScore& all, const ModelArgs& model,
           const TaskArgs& args, bool json) {
  if (json) {
    ordered_json tasks = ordered_json::object();
    for (const eval::TaskScore& s : scores) tasks[s.task] = json_of(s);
    ordered_json j = {{"model", model.model}, {"file", args.file}, {"think", args.think}};
    j.update(json_of(all));
    j["cut"] = all.cut;
    j["tasks"] = tasks;
    if (args.drafts) j["mtp"] = {{"drafted", all.drafted}, {"accepted", all.accepted}};
    fmt::print("{}\n", io::dumped(j));
    return;
  }
  using report::Align;
  report::Table table(
      {{"task"}, {"right", Align::right}, {"n", Align::right}, {"accuracy", Align::right}, {"95% interval"}});
  const auto row = [&](const eval::TaskScore& s) {
    const auto [low, high] = s.interval();
    table.row({printable(s.task, 40), std::to_string(s.right), std::to_string(s.n),
               fmt::format("{:.1f}%", 100 * s.accuracy()), fmt::format("{:.1f} to {:.1f}%", 100 * low, 100 * high)});
  };
  for (const eval::TaskScore& s : scores) row(s);
  if (scores.size() > 1) row(all);
  fmt::print("{}", table.plain());
  if (all.cut > 0) {
    fmt::print(stderr, "{} cut short, or had no room: a larger -n or -c would tell whether they are right\n",
               report::counted(all.cut, "answer") + (all.cut == 1 ? " was" : " were"));
  }
  if (args.drafts && all.drafted > 0)
    fmt::print("prediction block: {} of {} tokens drafted right, {:.1f}%\n", all.accepted, all.drafted,
               100.0 * static_cast<double>(all.accepted) / static_cast<double>(all.drafted));
}

void write_answers(const std::string& path, const std::vector<ordered_json>& rows,
                   const std::vector<eval::TaskResult>& results) {
  io::AtomicFile file(path);
  for (size_t i = 0; i < rows.size(); ++i) {
    ordered_json row = rows[i];
    row["reasoning"] = results[i].reasoning;
    row["answer"] = results[i].content;
    row["right"] = results[i].right;
    if (results[i].cut) row["cut"] = true;
    file.write(io::dumped(row) + "\n");
  }
  file.commit();
}

}  // namespace

int eval_tasks(const ModelArgs& model, const TaskArgs& args, bool json) {
  if (args.tokens < 1 || args.tokens > (1 << 20) || args.slots < 1 || args.slots > 1024) {
    fail("eval", {.what = "out of range",
                  .got = fmt::format("--predict {} --slots {}", args.tokens, args.slots),
                  .expected = "1 to 1048576 tokens, 1 to 1024 slots"});
  }
  check_range("--reasoning-budget", args.budget, -1, 1 << 20);
  if (args.drafts && model.ranks && model.ranks->division().pp > 1)
    fail("--mtp", {.what = "the last stage alone has the prediction block", .got = "--pp", .expected = "--tp or --ep"});
  if (!args.answers.empty()) io::check_new_file(args.answers);
  const std::vector<ordered_json> rows = eval::read_tasks(args.file);
  engine::RunnerOptions options = model.runner_options();
  options.sequences = std::min(args.slots, static_cast<int64_t>(std::ssize(rows)));
  args.speculation.reserve(options, options.sequences);
  const std::optional<engine::DraftModel> draft = args.speculation.load(options);
  engine::LanguageModel lm = model.open(options);
  sys::catch_interrupts();
  std::vector<eval::TaskResult> results;
  {
    report::Progress progress("answering", std::ssize(rows));
    const eval::TaskOptions how{.think = think_switch(args.think),
                                .tokens_max = args.tokens,
                                .budget = args.budget,
                                .drafts = args.drafts,
                                .speculation = args.speculation.resolve(lm, draft)};
    results = eval::run_tasks(lm, rows, how, [&](int64_t done) {
      progress.at(done);
      return !lm.runner().interrupted();
    });
  }
  if (lm.runner().interrupted()) return 130;
  const std::vector<eval::TaskScore> scores = eval::scores_of(results);
  eval::TaskScore all{.task = "all"};
  for (const eval::TaskScore& s : scores) {
    all.right += s.right;
    all.n += s.n;
    all.cut += s.cut;
    all.drafted += s.drafted;
    all.accepted += s.accepted;
  }
  print(scores, all, model, args, json);  // before a file for which there may be no room
  if (!args.answers.empty() && (!model.ranks || model.ranks->first())) write_answers(args.answers, rows, results);
  return 0;
}

}  // namespace braid::apps
