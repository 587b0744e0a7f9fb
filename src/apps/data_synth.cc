// braid data synth: the text that the model which ships with Braid learns from, and the tasks it is judged by.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/result.h"
#include "data/synth/synth.h"
#include "eval/tasks.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

struct DataSynthArgs {
  std::string out;
  std::vector<std::string> avoid;
  bool json = false;
  int64_t seed = 0, train = synth::Options{}.train, valid = synth::Options{}.valid, tasks = synth::Options{}.tasks;
};

// The last message of every task.
void append_prompts(const std::string& file, std::vector<std::string>& out) {
  for (const auto& row : eval::read_tasks(file)) {
    const auto& last = row["messages"].back();
    if (last.contains("content") && last["content"].is_string()) out.push_back(last["content"]);
  }
}

int data_synth(const DataSynthArgs& o) {
  constexpr int64_t kRowsMax = 100'000'000;
  for (const int64_t count : {o.train, o.valid, o.tasks}) {
    if (count < 0 || count > kRowsMax)
      fail(
          "data synth",
          {.what = "not a number of rows", .got = std::to_string(count), .expected = fmt::format("0 to {}", kRowsMax)});
  }
  check_range("--seed", o.seed, 0, INT64_MAX);
  if (o.out.empty()) fail("data synth", {.what = "no output is named", .hint = "--out DIR"});
  io::check_new_folder(o.out);
  sys::catch_requests_to_stop();
  report::Progress progress("conversations", o.train);
  synth::Options options{
      .seed = static_cast<uint64_t>(o.seed), .train = o.train, .valid = o.valid, .tasks = o.tasks, .avoid = {}};
  for (const std::string& file : o.avoid) append_prompts(file, options.avoid);
  const bool whole = synth::write(o.out, options, [&](int64_t done) {
    progress.at(done);
    return sys::caught_signal() == 0;
  });
  progress.wipe();
  if (!whole) return 128 + sys::caught_signal();
  print_result(o.json, {{"folder", o.out}, {"train", o.train}, {"valid", o.valid}, {"tasks", o.tasks}},
               fmt::format("{}: {} conversations to learn from, {} to watch, {} tasks of each kind", printable(o.out),
                           o.train, o.valid, o.tasks));
  return 0;
}

}  // namespace

Action setup_data_synth(Cli& cli) {
  auto o = std::make_shared<DataSynthArgs>();
  cli.option("--out DIR", o->out, "the folder to create");
  cli.rest("TASKS", o->avoid, "files of tasks; near copies of their prompts are left out");
  cli.option("--seed", o->seed, "the same seed gives the same bytes");
  cli.option("--train", o->train, "conversations in train.jsonl");
  cli.option("--valid", o->valid, "conversations in valid.jsonl, from another random stream");
  cli.option("--tasks", o->tasks, "held-out problems of each kind");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return data_synth(*o); };
}

}  // namespace braid::apps
