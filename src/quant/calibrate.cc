#include "quant/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "models/load.h"
#include "quant/layer_model.h"
#include "quant/matrix.h"
#include "sys/error.h"

namespace braid::quant {
namespace {

using models::QuantFormat;

double sum_of(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

class Calibrator {
 public:
  Calibrator(const io::ModelPath& path, const models::QuantRecipe& recipe,
             std::span<const std::vector<int32_t>> samples, const CalibrateOptions& options)
      : options_(options),
        where_(printable(path.name)),
        config_(models::load_config(path)),
        folder_(models::open_folder(path)),
        samples_(samples),
        states_(samples.size()) {
    ctx_.threads = options.threads;
    check();
    for (models::PlannedMatrix& matrix : models::quant_plan(config_, *folder_.source, recipe)) {
      if (!matrix.misfit.empty()) continue;
      Param param = folder_.source->get(matrix.tensor);
      const ParamRole role = param.role;
      Planned planned{std::move(matrix), std::move(param)};
      if (role == ParamRole::embedding || role == ParamRole::positions)
        tables_.push_back(std::move(planned));
      else if (role == ParamRole::head)
        head_ = std::move(planned);
      else if (!planned.param.mtp && planned.param.layer >= 0)
        layers_[planned.param.layer].push_back(std::move(planned));
    }
    if (layers_.empty() && !head_)
      fail(where_, {.what = "has no matrix of a layer or head that the recipe quantises",
                    .got = printable(recipe.name),
                    .hint = "--method rtn"});
  }

  Calibrated run(const Progress& progress) {
    const auto layers = std::ssize(config_.layers), samples = std::ssize(samples_);
    for (const Planned& table : tables_) round_to_nearest(table, std::nullopt);
    for (int64_t l = 0; l < layers; ++l) {
      const auto step = [&](int64_t sample) { return progress(2 * l * samples + sample, 2 * layers * samples); };
      if (!layer(l, step)) return std::move(out_);
    }
    if (head_ && !config_.tied) quantise_head();
    for (const Planned& p : of_experts_) give_amax(p);
    out_.whole = progress(2 * layers * samples, 2 * layers * samples);
    return std::move(out_);
  }

 private:
  void check() const {
    if (config_.loop)
      fail(where_,
           {.what = "has layers that run several times, which calibration does not support", .hint = "--method rtn"});
    for (const std::vector<int32_t>& ids : samples_) {
      for (const int32_t id : ids) {
        if (id < 0 || id >= config_.vocab)
          fail(where_, {.what = "a sample has a token outside of the vocabulary",
                        .got = std::to_string(id),
                        .expected = fmt::format("0 to {}", config_.vocab - 1)});
      }
    }
  }

  bool pass(int64_t l, Inputs* inputs, std::vector<std::vector<float>>& states,
            const sys::FunctionRef<bool(int64_t)>& step) {
    LayerModel model(config_, l, *folder_.source, values_);
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (!step(static_cast<int64_t>(i))) return false;
      if (inputs) {
        inputs->begin_sample(i % 4 == 3);
        std::vector<float> x = states[i];
        model.forward(ctx_, samples_[i], x, inputs);
      } else {
        model.forward(ctx_, samples_[i], states[i], nullptr);
      }
      if (l + 1 == std::ssize(config_.layers) && !inputs && head_ && !config_.tied) {
        const Tensor x = model.head_input(ctx_, states[i], std::ssize(samples_[i]));
        head_inputs_.begin_sample(i % 4 == 3);
        head_inputs_.product(head_->param, x.view(), x.view());
      }
    }
    return true;
  }

  bool layer(int64_t l, const sys::FunctionRef<bool(int64_t)>& step) {
    const auto planned = layers_.find(static_cast<int>(l));
    const auto samples = std::ssize(samples_);
    if (planned != layers_.end()) {
      Inputs inputs;
      if (!pass(l, &inputs, states_, step)) return false;
      for (const Planned& p : planned->second) quantise(p, inputs);
    }
    const auto second = [&](int64_t sample) { return step(samples + sample); };
    const bool whole = pass(l, nullptr, states_, second);
    values_.clear();
    store_.drop_made();
    return whole;
  }

  void quantise_head() { quantise(*head_, head_inputs_); }

  void quantise(const Planned& p, const Inputs& inputs) {
    const std::string& name = p.param.name;
    const int64_t rows = inputs.rows(name, Part::all);
    if (rows < options_.rows_min) {
      out_.few.push_back(fmt::format("{}: {} inputs", name, rows));
      return round_to_nearest(p, rows > 0 ? std::optional(inputs.amax(name, {})) : std::nullopt);
    }
    const std::vector<double> gram = inputs.gram(ctx_, name, Part::all);
    const double diagonal = gram_diagonal(gram, p.param.value.cols);
    if (!std::isfinite(diagonal))
      fail(name, {.what = "its input has a value that is not finite", .hint = "another text, or a sound model"});
    if (diagonal == 0) return round_to_nearest(p, 0.0f);
    Rounding rounding(ctx_, p, {}, where_);
    models::Encoded best = rounding.nearest();
    const std::vector<float> all = in_f32(gram);
    std::vector<double> errors = rounding.errors_of(&best, all);
    MatrixResult result{.name = name, .role = p.param.role, .format = p.matrix.rule.format};
    result.nearest = result.chosen = sum_of(errors);
    result.outputs = sum_of(rounding.errors_of(nullptr, all));
    if (wants_feedback(p, rounding, inputs)) {
      const Feedback feedback = factor(gram, p.param.value.cols, rounding.block(), options_.damping, options_.threads);
      result.chosen = rounding.take_better(best, errors, rounding.with_feedback(feedback), all);
      result.feedback = result.chosen < result.nearest;
    }
    out_.results.push_back(result);
    keep(p, std::move(best), rounding.global(), inputs.amax(name, {}));
  }

  static double gram_diagonal(const std::vector<double>& gram, int64_t cols) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += gram[static_cast<size_t>(c * cols + c)];
    return sum;
  }

  // Whether feedback that was fitted to three quarters of the samples lowers the error on the others.
  bool wants_feedback(const Planned& p, const Rounding& rounding, const Inputs& inputs) {
    const std::string& name = p.param.name;
    if (options_.method == Method::gptq) return true;
    if (options_.method == Method::awq) return false;
    if (inputs.rows(name, Part::held) == 0 || inputs.rows(name, Part::fit) == 0) return false;
    const int64_t cols = p.param.value.cols;
    const std::vector<double> fit = inputs.gram(ctx_, name, Part::fit);
    if (gram_diagonal(fit, cols) == 0) return false;
    models::Encoded best = rounding.nearest();
    const std::vector<float> judge = in_f32(inputs.gram(ctx_, name, Part::held)), fitted = in_f32(fit);
    const double nearest = sum_of(rounding.errors_of(&best, judge));
    std::vector<double> errors = rounding.errors_of(&best, fitted);
    rounding.take_better(
        best, errors, rounding.with_feedback(factor(fit, cols, rounding.block(), options_.damping, options_.threads)),
        fitted);
    return sum_of(rounding.errors_of(&best, judge)) < nearest;
  }

  void round_to_nearest(const Planned& p, std::optional<float> amax) {
    const Rounding rounding(ctx_, p, {}, where_);
    keep(p, rounding.nearest(), rounding.global(), amax);
  }

  void keep(const Planned& p, models::Encoded matrix, float global, std::optional<float> amax) {
    const Weight& w = p.param.value;
    values_[p.param.name] = models::weight_of(matrix, w.rows, w.cols, p.matrix.rule.format, global, store_);
    out_.matrices[p.param.name] = {std::move(matrix), global};
    if (amax) out_.input_amax[p.param.name] = *amax;
    if (p.param.expert >= 0) of_experts_.push_back(p);
  }

  // An expert that no token chose, or whose inputs were all zero, gets the maximum over its layer's other experts.
  void give_amax(const Planned& p) {
    float& own = out_.input_amax[p.param.name];
    if (own > 0) return;
    for (const Planned& other : of_experts_) {
      if (other.param.layer == p.param.layer && other.param.role == p.param.role) {
        const auto found = out_.input_amax.find(other.param.name);
        if (found != out_.input_amax.end()) own = std::max(own, found->second);
      }
    }
  }

  const CalibrateOptions& options_;
  std::string where_;
  models::Config config_;
  models::OpenFolder folder_;
  std::span<const std::vector<int32_t>> samples_;
  std::vector<std::vector<float>> states_;  // of the samples, before the next layer
  std::vector<Planned> tables_, of_experts_;
  std::optional<Planned> head_;
  std::map<int, std::vector<Planned>> layers_;
  Arena arena_;
  Ctx ctx_{.arena = arena_};
  Inputs head_inputs_;
  WeightStore store_;
  std::map<std::string, Weight> values_;  // of the layer's quantised matrices, made in store_
  Calibrated out_;
};

}  // namespace

Calibrated calibrate(const io::ModelPath& path, const models::QuantRecipe& recipe,
                     std::span<const std::vector<int32_t>> samples, const CalibrateOptions& options,
                     const Progress& progress) {
  return Calibrator(path, recipe, samples, options).run(progress);
}

}  // namespace braid::quant
