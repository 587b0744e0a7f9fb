// braid quantize: a Hugging Face folder with quantised matrices from one without.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/quantize_report.h"
#include "io/atomic_file.h"
#include "io/model_path.h"
#include "models/load.h"
#include "models/presets.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {

// What --data and --method ask for, into the options of the writer; false: stopped.
bool calibrate(QuantizeArgs& o, models::QuantRecipe& recipe) {
  io::check_new_model(o.out);
  io::check_parent(o.out);
  o.calibration.model = o.model;
  o.calibration.threads = o.quant.threads;
  o.calibration.length_is_default = !o.cli->given("length");
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

// --head-format and --embedding-format: rules before those of the recipe.
void put_tables_first(const QuantizeArgs& o, models::QuantRecipe& recipe) {
  const auto put = [&](const char* option, ParamRole role, const std::string& word) {
    if (word.empty()) return;
    recipe.put_first(option, role, quant_format(word).value_or(QuantFormat::bf16));  // keep
  };
  put("--embedding-format", ParamRole::embedding, o.embedding);
  put("--head-format", ParamRole::head, o.head);
  if (!o.head.empty() && o.head != "keep" && models::load_config(models::find_weights(o.model)).tied)
    fail("--head-format", {.what = "the head is the embedding table: there is no other matrix",
                           .got = printable(o.model),
                           .hint = "--embedding-format, for both"});
}

int quantize_command(QuantizeArgs o) {
  if (!o.recipe.empty() && o.cli->given("format"))
    fail("quantize",
         {.what = "both --format and --recipe are given", .expected = "one of them; a recipe says its formats"});
  models::QuantRecipe recipe = models::quant_recipe(o.recipe.empty() ? o.format : o.recipe);
  put_tables_first(o, recipe);
  if (!o.scales.empty()) {
    const bool searches = o.cli->given("bits") || std::ranges::any_of(recipe.rules, [](const models::QuantRule& r) {
                            return codec_of(r.format).scale_bytes > 0;
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
  sys::end_at_second_interrupt();
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
  print_quantized(o, result);
  return 0;
}

}  // namespace

Action setup_quantize(Cli& cli) {
  auto o = std::make_shared<QuantizeArgs>();
  std::string names;
  for (const std::string& name : models::quant_recipe_names()) {
    if (!quant_format(name)) names += (names.empty() ? "" : ", ") + name;
  }
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.positional("out", o->out, "the folder to create");
  o->cli = &cli;
  cli.choice("--format", o->format, {"nvfp4", "fp8", "mxfp4", "int8", "int4", "int3"},
             "of the large matrices in the layers; nvfp4 and fp8 leave attention as it is, as NVIDIA does");
  cli.option("--recipe NAME|FILE", o->recipe, "formats by matrix: " + names + ", a format, or a TOML file of rules");
  const std::vector<std::string> formats = {"keep", "nvfp4", "fp8", "mxfp4", "int8", "int4", "int3"};
  cli.choice("--head-format", o->head, formats, "of the head instead of the recipe's; keep: as it is");
  cli.choice("--embedding-format", o->embedding, formats, "the same of the embedding, and of a head tied to it");
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
