#include "apps/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/default_context.h"
#include "apps/model_args.h"
#include "engine/calibrate.h"
#include "models/load.h"
#include "models/presets.h"
#include "report/progress.h"
#include "report/table.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/read.h"
#include "text/tokenizer.h"

namespace braid::apps {
namespace {

std::string calibration_text(const std::string& file) {
  std::string text = sys::read_file(file);
  if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c) != 0; }))
    fail(printable(file), {.what = "has no text", .expected = "text like what the model reads"});
  return text;
}

engine::LanguageModel open_model(const CalibrationArgs& o, int64_t context) {
  engine::RunnerOptions options{.numerics = Numerics::serving(DType::f32)};
  options.context = default_context(o.model, context);
  options.threads = o.threads;
  return {o.model, options};
}

// Sums over the matrices of one role and format.
struct Line {
  int64_t matrices = 0, feedback = 0, scaled = 0;
  double nearest = 0, chosen = 0, outputs = 0;

  double relative(double errors) const { return outputs > 0 ? std::sqrt(errors / outputs) : 0; }
};

std::map<std::pair<std::string, std::string>, Line> lines_of(const quant::Calibrated& calibrated) {
  std::map<std::pair<std::string, std::string>, Line> lines;
  for (const quant::MatrixResult& r : calibrated.results) {
    Line& line = lines[{name_of(r.role), codec_of(r.format).name}];
    line.matrices += 1;
    line.feedback += r.feedback ? 1 : 0;
    line.scaled += r.scaled ? 1 : 0;
    line.nearest += r.nearest;
    line.chosen += r.chosen;
    line.outputs += r.outputs;
  }
  return lines;
}

}  // namespace

std::map<std::string, float> measured_inputs(const CalibrationArgs& o) {
  const std::string text = calibration_text(o.data);
  engine::LanguageModel model = open_model(o, 512);
  need_tokenizer(model.path(), "a folder with tokenizer.json");
  const std::vector<int32_t> ids = model.tokenizer().encode(text, true);
  report::Progress progress("measuring inputs", std::ssize(ids));
  return engine::input_amax(model.runner(), ids, [&](int64_t done, int64_t) {
    progress.at(done);
    return sys::caught_signal() == 0;
  });
}

std::vector<std::vector<int32_t>> calibration_samples(CalibrationArgs& o) {
  const io::ModelPath path = models::find_weights(o.model);
  const std::string text = calibration_text(o.data);
  need_tokenizer(path, "a folder with tokenizer.json");
  const int64_t most = models::load_config(path).positions_max;
  if (most > 0 && o.length_is_default) o.length = std::min(o.length, most);
  if (most > 0 && o.length > most)
    fail("--length", {.what = "is more than the model's positions",
                      .got = std::to_string(o.length),
                      .expected = fmt::format("at most {}", most)});
  const std::vector<int32_t> ids = text::Tokenizer::load(path.folder).encode(text, true);
  // What is left at the end is a sample only where there is no other.
  const int64_t windows = std::max<int64_t>(1, std::ssize(ids) / o.length), n = std::min(windows, o.samples);
  std::vector<std::vector<int32_t>> samples;
  for (int64_t i = 0; i < n; ++i) {
    const auto begin = ids.begin() + windows * i / n * o.length;
    samples.emplace_back(begin, begin + std::min<int64_t>(o.length, ids.end() - begin));
  }
  return samples;
}

quant::Calibrated calibrated(const CalibrationArgs& o, const models::QuantRecipe& recipe,
                             const std::vector<std::vector<int32_t>>& samples) {
  using enum quant::Method;
  const quant::CalibrateOptions options{.method = o.method == "gptq"  ? gptq
                                                  : o.method == "awq" ? awq
                                                                      : automatic,
                                        .threads = o.threads};
  std::optional<report::Progress> progress;
  return quant::calibrate(models::find_weights(o.model), recipe, samples, options, [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace("calibrating", total);
    progress->at(done);
    return sys::caught_signal() == 0;
  });
}

std::string outputs_table(const quant::Calibrated& calibrated) {
  using report::Align;
  report::Table table({{"matrices"},
                       {"format"},
                       {"number", Align::right},
                       {"feedback", Align::right},
                       {"scaled", Align::right},
                       {"output error, nearest", Align::right},
                       {"chosen", Align::right}});
  for (const auto& [key, line] : lines_of(calibrated)) {
    table.row({key.first, key.second, std::to_string(line.matrices), std::to_string(line.feedback),
               std::to_string(line.scaled), fmt::format("{:.3f}%", 100 * line.relative(line.nearest)),
               fmt::format("{:.3f}%", 100 * line.relative(line.chosen))});
  }
  return table.plain();
}

nlohmann::ordered_json outputs_json(const quant::Calibrated& calibrated) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [key, line] : lines_of(calibrated)) {
    out.push_back({{"role", key.first},
                   {"format", key.second},
                   {"matrices", line.matrices},
                   {"feedback", line.feedback},
                   {"scaled", line.scaled},
                   {"nearest_error", line.relative(line.nearest)},
                   {"chosen_error", line.relative(line.chosen)}});
  }
  return out;
}

}  // namespace braid::apps
