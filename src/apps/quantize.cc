// braid quantize: a Hugging Face folder with quantised matrices from one without.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "engine/calibrate.h"
#include "io/atomic_file.h"
#include "models/load.h"
#include "models/presets.h"
#include "models/quantize.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

struct QuantizeArgs {
  std::string model, out, format = "nvfp4", recipe, scales, data;
  models::QuantOptions quant;
  int64_t threads = 0;
  bool json = false;
  const Cli* cli = nullptr;
};

double bits(int64_t bytes, int64_t values) {
  return 8 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, values));
}

void print_table(const QuantizeArgs& o, const models::QuantReport& report) {
  using report::Align;
  report::Table table({{"matrices"},
                       {"format"},
                       {"number", Align::right},
                       {"values", Align::right},
                       {"bytes", Align::right},
                       {"bits each", Align::right},
                       {"error", Align::right}});
  const auto row = [&](const models::QuantGroup& g, const std::string& error) {
    table.row({g.role, g.format, std::to_string(g.tensors), report::count(static_cast<double>(g.values)),
               report::bytes(g.bytes), fmt::format("{:.2f}", bits(g.bytes, g.values)), error});
  };
  for (const models::QuantGroup& g : report.groups) row(g, fmt::format("{:.2f}%", 100 * g.error));
  models::QuantGroup kept = report.kept;
  kept.role = "the rest";
  kept.format = "as it was";
  row(kept, "0");
  fmt::print("{}\n{}: {}, {:.2f} bits per value\n", table.plain(), printable(o.out), report::bytes(report.bytes()),
             bits(report.bytes(), report.values()));
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  constexpr size_t kNamed = 5;
  for (size_t i = 0; i < std::min(kNamed, report.misfits.size()); ++i)
    fmt::print(stderr, "kept: {}\n", report.misfits[i]);
  if (report.misfits.size() > kNamed) fmt::print(stderr, "kept: {} more like these\n", report.misfits.size() - kNamed);
}

void print_json(const QuantizeArgs& o, const models::QuantReport& report) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const models::QuantGroup& g : report.groups) {
    groups.push_back({{"role", g.role},
                      {"format", g.format},
                      {"tensors", g.tensors},
                      {"values", g.values},
                      {"bytes", g.bytes},
                      {"bits", bits(g.bytes, g.values)},
                      {"relative_error", g.error}});
  }
  const nlohmann::ordered_json j = {{"model", o.model},
                                    {"output", o.out},
                                    {"recipe", o.recipe.empty() ? o.format : o.recipe},
                                    {"groups", std::move(groups)},
                                    {"kept_bytes", report.kept.bytes},
                                    {"kept_values", report.kept.values},
                                    {"misfits", report.misfits},
                                    {"notes", report.notes},
                                    {"bytes", report.bytes()},
                                    {"bits_per_value", bits(report.bytes(), report.values())}};
  fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// The largest input of every matrix over the text of --data; empty if stopped.
std::map<std::string, float> calibrate(const QuantizeArgs& o) {
  const std::string text = sys::read_file(o.data);
  if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c) != 0; }))
    fail(printable(o.data), {.what = "has no text"});
  const int64_t most = models::load_config(models::find_weights(o.model)).positions_max;
  engine::RunnerOptions options{.numerics = Numerics::serving(DType::f32)};
  options.context = most > 0 ? std::min<int64_t>(512, most) : 512;
  options.threads = o.quant.threads;
  engine::LanguageModel model(o.model, options);
  need_tokenizer(model.path(), "a folder with tokenizer.json");
  const std::vector<int32_t> ids = model.tokenizer().encode(text, true);
  report::Progress progress("measuring inputs", std::ssize(ids));
  return engine::input_amax(model.runner(), ids, [&](int64_t done, int64_t) {
    progress.at(done);
    return sys::caught_signal() == 0;
  });
}

int quantize_command(QuantizeArgs o) {
  if (!o.recipe.empty() && o.cli->given("format"))
    fail("quantize",
         {.what = "both --format and --recipe are given", .expected = "one of them; a recipe says its formats"});
  models::QuantRecipe recipe = models::quant_recipe(o.recipe.empty() ? o.format : o.recipe);
  if (!o.scales.empty()) {
    for (models::QuantRule& rule : recipe.rules) rule.scales = models::scale_search("--scales", o.scales);
    if (recipe.compressed() && o.scales == "four-over-six")
      fail("--scales", {.what = "four-over-six is a search of NVFP4", .expected = "max or mse for " + recipe.name});
  }
  check_range("--threads", o.threads, 0, 1024);
  o.quant.threads = o.threads > 0 ? static_cast<int>(o.threads) : sys::default_threads();
  if (!o.data.empty() && recipe.compressed())
    fail("--data", {.what = recipe.name + " has no scales of inputs",
                    .expected = "nvfp4, fp8, or a recipe of them",
                    .hint = "leaving out --data"});
  sys::catch_requests_to_stop();
  if (!o.data.empty()) {
    io::check_new_folder(o.out);
    io::check_parent(o.out);
    o.quant.input_amax = calibrate(o);
    if (sys::caught_signal() != 0) return 128 + sys::caught_signal();
  }
  models::QuantReport result;
  {
    std::optional<report::Progress> progress;
    result =
        models::quantize_model(models::find_weights(o.model), recipe, o.out, o.quant, [&](int64_t done, int64_t total) {
          if (!progress) progress.emplace("quantizing", total);
          progress->at(done);
          return sys::caught_signal() == 0;
        });
  }
  if (!result.whole) return 128 + sys::caught_signal();
  if (o.json)
    print_json(o, result);
  else
    print_table(o, result);
  return 0;
}

}  // namespace

Action setup_quantize(Cli& cli) {
  auto o = std::make_shared<QuantizeArgs>();
  std::string names;
  for (const std::string& name : models::quant_recipe_names()) {
    if (!models::quant_format(name)) names += (names.empty() ? "" : ", ") + name;
  }
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.positional("out", o->out, "the folder to create");
  o->cli = &cli;
  cli.choice("--format", o->format, {"nvfp4", "fp8", "mxfp4", "int8", "int4", "int3"},
             "of the large matrices in the layers; nvfp4 and fp8 leave attention as it is, as NVIDIA does");
  cli.option("--recipe NAME|FILE", o->recipe, "formats by matrix: " + names + ", a format, or a TOML file of rules");
  cli.choice("--scales", o->scales, {"max", "four-over-six", "mse"},
             "how block scales are chosen, instead of by the recipe (four-over-six: NVFP4 only)");
  cli.option("--data FILE", o->data, "calibration text: nvfp4 and fp8 get the input_scale of W4A4 and W8A8");
  cli.flag("--strict", o->quant.strict,
           "a matrix that its format cannot hold is an error; otherwise it stays as it is");
  cli.option("-t,--threads", o->threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return quantize_command(*o); };
}

}  // namespace braid::apps
