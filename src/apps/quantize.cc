// braid quantize: a Hugging Face folder with quantised matrices from one without.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bits.h"
#include "apps/calibration.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "io/atomic_file.h"
#include "io/model_path.h"
#include "io/ordered_json.h"
#include "models/presets.h"
#include "models/quantize.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {

struct QuantizeArgs {
  std::string model, out, format = "nvfp4", recipe, scales;
  CalibrationArgs calibration;
  quant::Calibrated method;  // what it did
  double bits = 0;           // 0: formats are the recipe's
  BitsChoice choice;
  int64_t samples = 0;
  models::QuantOptions quant;
  int64_t threads = 0;
  bool mtp = false, json = false;
  const Cli* cli = nullptr;
};

double bits(int64_t bytes, int64_t values) {
  return 8 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, values));
}

void print_some(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kNamed = 5;
  for (size_t i = 0; i < std::min(kNamed, names.size()); ++i) fmt::print(stderr, "{}: {}\n", what, names[i]);
  if (names.size() > kNamed) fmt::print(stderr, "{}: {} more like these\n", what, names.size() - kNamed);
}

void print_table(const QuantizeArgs& o, const models::QuantReport& report) {
  using report::Align;
  report::Table table({{"matrices"},
                       {"format"},
                       {"number", Align::right},
                       {"values", Align::right},
                       {"bytes", Align::right},
                       {"bits each", Align::right},
                       {"error", Align::right},
                       {""}});
  const auto row = [&](const models::QuantGroup& g, const std::string& error) {
    table.row({g.role, g.format, std::to_string(g.tensors), report::count(static_cast<double>(g.values)),
               report::bytes(g.bytes), fmt::format("{:.2f}", bits(g.bytes, g.values)), error, g.why});
  };
  for (const models::QuantGroup& g : report.groups) row(g, fmt::format("{:.2f}%", 100 * g.error));
  models::QuantGroup kept = report.kept;
  kept.role = "the rest";
  kept.format = "as it was";
  for (models::QuantGroup g : report.unfit) {
    kept.tensors -= g.tensors;
    kept.values -= g.values;
    kept.bytes -= g.bytes;
    g.format = "as it was";
    row(g, "0");
  }
  row(kept, "0");
  fmt::print("{}\n{}: {}, {:.2f} bits per value\n", table.plain(), printable(o.out), report::bytes(report.bytes()),
             bits(report.bytes(), report.values()));
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  if (o.bits > 0) fmt::print("\n{}", bits_table(o.choice));
  if (o.samples > 0)
    fmt::print("\n{}\n{} samples, layer by layer over quantised layers; output errors are those on them\n",
               outputs_table(o.method), o.samples);
  print_some("rounded to nearest, too few inputs", o.method.few);
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
  nlohmann::ordered_json j = {{"model", o.model},
                              {"output", o.out},
                              {"recipe", o.recipe.empty() ? o.format : o.recipe},
                              {"groups", std::move(groups)},
                              {"kept_bytes", report.kept.bytes},
                              {"kept_values", report.kept.values},
                              {"misfits", report.misfits},
                              {"notes", report.notes},
                              {"bytes", report.bytes()},
                              {"bits_per_value", bits(report.bytes(), report.values())}};
  if (o.bits > 0) {
    j["choice"] = bits_json(o.choice);
    j["choice_kl"] = o.choice.kl;
    j["choice_kl_bound"] = o.choice.bound;
  }
  if (o.samples > 0) {
    j["method"] = o.calibration.method;
    j["samples"] = o.samples;
    j["outputs"] = outputs_json(o.method);
    j["few_inputs"] = o.method.few;
  }
  fmt::print("{}\n", io::dumped(j));
}

// What --data and --method ask for, into the options of the writer; false: stopped.
bool calibrate(QuantizeArgs& o, models::QuantRecipe& recipe) {
  io::check_new_model(o.out);
  io::check_parent(o.out);
  o.calibration.model = o.model;
  o.calibration.threads = o.quant.threads;
  const bool rtn = o.calibration.method == "rtn";
  std::vector<std::vector<int32_t>> samples;
  if (!rtn || o.bits > 0) samples = calibration_samples(o.calibration);
  if (o.bits > 0) {
    o.choice = choose_bits(o.calibration, recipe, o.bits, samples);
    if (!o.choice.whole) return false;
    recipe = o.choice.recipe;
  }
  if (rtn) {
    if (!recipe.compressed()) o.quant.input_amax = measured_inputs(o.calibration);
    return sys::caught_signal() == 0;
  }
  o.samples = std::ssize(samples);
  o.method = calibrated(o.calibration, recipe, samples);
  if (!o.method.whole) return false;
  o.quant.calibrated = std::move(o.method.matrices);
  o.quant.folded = std::move(o.method.folded);
  if (!recipe.compressed()) o.quant.input_amax = std::move(o.method.input_amax);
  return true;
}

void check_data(const QuantizeArgs& o, const models::QuantRecipe& recipe) {
  const bool rtn = o.calibration.method == "rtn";
  check_range("--samples", o.calibration.samples, 1, 1 << 20);
  check_range("--length", o.calibration.length, 2, 1 << 20);
  const bool budget = o.cli->given("bits");
  if (budget && !(o.bits > 0 && o.bits <= 16))
    fail("--bits", {.what = "is not a budget", .got = fmt::format("{:g}", o.bits), .expected = "above 0, up to 16"});
  if (o.calibration.data.empty() && !rtn)
    fail("--method", {.what = o.calibration.method + " needs calibration data", .hint = "--data TEXT"});
  if (o.calibration.data.empty() && budget)
    fail("--bits", {.what = "needs calibration data to measure what formats lose", .hint = "--data TEXT"});
  for (const char* name : {"samples", "length"}) {
    if (rtn && !budget && o.cli->given(name))
      fail(fmt::format("--{}", name), {.what = "is of calibration, and --method rtn has none",
                                       .hint = fmt::format("leaving out --{}, or --method auto", name)});
  }
  if (!o.calibration.data.empty() && rtn && !budget && recipe.compressed())
    fail("--data", {.what = recipe.name + " has no scales of inputs",
                    .expected = "nvfp4, fp8, or a recipe of them",
                    .hint = "leaving out --data, or --method auto"});
}

int quantize_command(QuantizeArgs o) {
  if (!o.recipe.empty() && o.cli->given("format"))
    fail("quantize",
         {.what = "both --format and --recipe are given", .expected = "one of them; a recipe says its formats"});
  models::QuantRecipe recipe = models::quant_recipe(o.recipe.empty() ? o.format : o.recipe);
  if (!o.scales.empty()) {
    const bool searches = o.cli->given("bits") || std::ranges::any_of(recipe.rules, [](const models::QuantRule& r) {
                            return models::has_block_scales(r.format);
                          });
    if (!searches && o.scales != "max")
      fail("--scales",
           {.what = recipe.name + " has no scales of blocks",
            .got = o.scales,
            .hint = o.scales == "four-over-six" ? "--format nvfp4" : "--format nvfp4, mxfp4, int8, int4 or int3"});
    for (models::QuantRule& rule : recipe.rules) rule.scales = models::scale_search("--scales", o.scales);
    if (recipe.compressed() && o.scales == "four-over-six")
      fail("--scales", {.what = "four-over-six is a search of NVFP4", .expected = "max or mse for " + recipe.name});
  }
  for (models::QuantRule& rule : recipe.rules) rule.mtp = rule.mtp || o.mtp;
  check_range("--threads", o.threads, 0, 1024);
  o.quant.threads = o.threads > 0 ? static_cast<int>(o.threads) : sys::default_threads();
  check_data(o, recipe);
  sys::catch_requests_to_stop();
  if (!o.calibration.data.empty() && !calibrate(o, recipe)) return 128 + sys::caught_signal();
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
  if (o.calibration.data.empty() && std::ranges::any_of(result.groups, [](const auto& g) { return g.format == "fp8"; }))
    fmt::print(stderr,
               "note: FP8 without input_scale, which readers that also quantise activations need: try --data TEXT\n");
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
  cli.option("--data FILE", o->calibration.data,
             "calibration text: nvfp4 and fp8 get the input_scale of W4A4 and W8A8");
  cli.choice("--method", o->calibration.method, {"rtn", "gptq", "awq", "auto"},
             "rtn: to the nearest; gptq: with error feedback; awq: with scaled channels; auto: what lowers the output "
             "error on held-out text. All but rtn need --data");
  cli.option("--bits B", o->bits,
             "bits per value of the model: formats by layer and module, of the layout of --format, chosen by what each "
             "loses alone on --data");
  cli.flag("--mtp", o->mtp, "the prediction block too, rounded as the recipe says; released files keep it");
  cli.option("--samples N", o->calibration.samples, "windows of the text that gptq, awq and auto read");
  cli.option("--length T", o->calibration.length, "tokens of a window");
  cli.flag("--strict", o->quant.strict,
           "a matrix that its format cannot hold is an error; otherwise it stays as it is");
  cli.option("-t,--threads", o->threads, "0: one per core");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return quantize_command(*o); };
}

}  // namespace braid::apps
