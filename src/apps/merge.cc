// braid merge: one model from several, or from a model and its adapter, as a Hugging Face folder of its own.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/result.h"
#include "apps/split.h"
#include "io/atomic_file.h"
#include "io/model_path.h"
#include "models/adapter_file.h"
#include "models/merge.h"
#include "models/presets.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {

using models::MergeModel;
using models::MergeRule;

struct MergeArgs {
  std::string model, adapter, weights, task, out;
  std::vector<std::string> others;
  double slerp = 0;
  bool mean = false, json = false;
  const Cli* cli = nullptr;
};

double merge_number(const char* option, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || stop != end || !std::isfinite(value))
    fail(option, {.what = "is not a list of numbers", .got = printable(text), .expected = "a number"});
  return value;
}

MergeModel merge_model(const std::string& argument, double weight) {
  MergeModel model{.path = models::find_weights(argument), .weight = weight};
  model.path.name = argument;  // so that two folders of the same name differ
  return model;
}

std::vector<MergeModel> models_of_mean(const MergeArgs& o) {
  std::vector<std::string> names{o.model};
  names.insert(names.end(), o.others.begin(), o.others.end());
  if (names.size() < 2)
    fail("--mean", {.what = "one model is its own mean", .hint = "braid merge A B --mean -o FOLDER"});
  std::vector<double> weights(names.size(), 1);
  if (!o.weights.empty()) {
    weights.clear();
    for (const std::string& word : split(o.weights)) weights.push_back(merge_number("--weights", word));
    if (weights.size() != names.size())
      fail("--weights", {.what = "does not have one for each model",
                         .got = std::to_string(weights.size()),
                         .expected = std::to_string(names.size())});
  }
  double sum = 0;
  for (const double weight : weights) {
    if (weight < 0)
      fail("--weights", {.what = "a mean has no negative weight",
                         .got = fmt::format("{}", weight),
                         .hint = "--task, whose factors may be negative"});
    sum += weight;
  }
  if (!(sum > 0) || !std::isfinite(sum))
    fail("--weights", {.what = "have no sum to divide by", .got = fmt::format("{}", sum), .expected = "above 0"});
  std::vector<MergeModel> models;
  for (size_t i = 0; i < names.size(); ++i) models.push_back(merge_model(names[i], weights[i] / sum));
  return models;
}

std::vector<MergeModel> models_of_task(const MergeArgs& o) {
  std::vector<MergeModel> models{merge_model(o.model, 1)};
  for (const std::string& word : split(o.task)) {
    const size_t colon = word.rfind(':');
    if (colon == std::string::npos || colon == 0)
      fail("--task", {.what = "a model has no factor", .got = printable(word), .expected = "MODEL:FACTOR,..."});
    models.push_back(merge_model(word.substr(0, colon), merge_number("--task", word.substr(colon + 1))));
  }
  return models;
}

std::vector<MergeModel> models_of_slerp(const MergeArgs& o) {
  if (o.others.size() != 1)
    fail("--slerp", {.what = "is between two models",
                     .got = std::to_string(o.others.size() + 1),
                     .hint = "braid merge A B --slerp 0.5 -o FOLDER"});
  if (!(o.slerp >= 0 && o.slerp <= 1))
    fail("--slerp", {.what = "is not between the models", .got = fmt::format("{}", o.slerp), .expected = "0 to 1"});
  return {merge_model(o.model, 1 - o.slerp), merge_model(o.others[0], o.slerp)};
}

// Calls of(progress) behind a bar; a signal stops it.
template <class Of>
auto with_bar(Of&& of) {
  std::optional<report::Progress> bar;
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  return of([&](int64_t done, int64_t total) {
    if (!bar) bar.emplace("merging", total);
    bar->at(done);
    return sys::caught_signal() == 0;
  });
}

int merge_whole(const MergeArgs& o, const char* method, MergeRule rule, const std::vector<MergeModel>& models) {
  const auto result = with_bar(
      [&](auto&& progress) { return models::merge_models(models, rule, o.out, sys::default_threads(), progress); });
  if (!result.whole) return 128 + sys::caught_signal();
  for (const std::string& note : result.notes) fmt::print(stderr, "note: {}\n", note);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MergeModel& m : models) list.push_back({{"model", m.path.name}, {"weight", m.weight}});
  print_result(o.json,
               {{"folder", o.out},
                {"method", method},
                {"models", std::move(list)},
                {"tensors", result.tensors},
                {"values", result.values},
                {"notes", result.notes}},
               fmt::format("{}: {} of {} models, {} values in {} tensors", printable(o.out), method, models.size(),
                           report::count(static_cast<double>(result.values)), result.tensors));
  return 0;
}

int merge_command(const MergeArgs& o) {
  const bool slerp = o.cli->given("slerp");
  const char* kMethods = "one of --adapter, --mean, --task and --slerp";
  const int methods = int{!o.adapter.empty()} + int{o.mean} + int{!o.task.empty()} + int{slerp};
  if (methods == 0)
    fail("merge", {.what = "no merge method given", .expected = kMethods, .hint = "braid merge --help"});
  if (methods > 1) fail("merge", {.what = "there are several ways to merge", .expected = kMethods});
  if (!o.mean && !o.weights.empty()) fail("--weights", {.what = "are of a mean", .hint = "--mean"});
  if (!o.mean && !slerp && !o.others.empty())
    fail("merge", {.what = "one argument too many", .got = printable(o.others[0]), .hint = "braid merge --help"});
  if (o.out.empty()) fail("merge", {.what = "no output is named", .hint = "-o FOLDER"});
  io::check_new_model(o.out);
  io::check_parent(o.out);
  if (o.mean) return merge_whole(o, "mean", MergeRule::mean, models_of_mean(o));
  if (slerp) return merge_whole(o, "slerp", MergeRule::slerp, models_of_slerp(o));
  if (!o.task.empty()) return merge_whole(o, "task", MergeRule::task, models_of_task(o));
  const io::ModelPath model = models::find_weights(o.model);
  if (!with_bar([&](auto&& progress) { return models::merge_adapter(model, o.adapter, o.out, progress); }))
    return 128 + sys::caught_signal();
  print_result(o.json, {{"folder", o.out}, {"adapter", o.adapter}}, printable(o.out));
  return 0;
}

}  // namespace

Action setup_merge(Cli& cli) {
  auto o = std::make_shared<MergeArgs>();
  o->cli = &cli;
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.rest("others", o->others, "more models of the same shape, for --mean and --slerp");
  cli.option("--adapter FOLDER", o->adapter, "add a LoRA adapter as PEFT and braid train write it");
  cli.flag("--mean", o->mean, "the mean of all models");
  cli.option("--weights W,W,...", o->weights, "of the models in --mean, divided by their sum; default: all the same");
  cli.option("--task M:F,...", o->task,
             "task arithmetic: for each model M add F times its difference from MODEL; F may be negative");
  cli.option("--slerp T", o->slerp, "between two models along the arc of each tensor: 0 is MODEL, 1 the other");
  cli.says("");
  cli.option("-o,--output FOLDER", o->out, "folder of the merged model; every weight keeps its name and type");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return merge_command(*o); };
}

}  // namespace braid::apps
