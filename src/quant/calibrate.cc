#include "quant/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <variant>

#include "io/safetensors.h"
#include "models/experts_apart.h"
#include "models/load.h"
#include "quant/fold.h"
#include "quant/layer_model.h"
#include "quant/matrix.h"
#include "quant/samples.h"
#include "sys/error.h"

namespace braid::quant {
namespace {

constexpr size_t kHeldEvery = 4;  // one sample of so many judges

double sum_of(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

// The matrix that makes what a down matrix reads: relu(up x)^2, or act(gate x) times up x.
struct Up {
  std::string name{};
  bool squared = false;
};

bool squares(const models::LayerSpec& layer) {
  return std::any_of(layer.parts.begin(), layer.parts.end(), [](const models::PartSpec& part) {
    if (const auto* mlp = std::get_if<nn::MlpSpec>(&part.block)) return !mlp->gated && mlp->act == Act::relu2;
    const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
    return moe && !moe->gated;
  });
}

// By the names of down matrices, where there is exactly one pair of them in a layer, or of an expert, without a bias.
std::map<std::string, Up> up_matrices(const models::Config& config, nn::ParamSource& files) {
  using enum ParamRole;
  std::map<std::tuple<int, bool, int>, std::vector<models::TensorSpec>> ups, downs;
  std::set<int> gated, biased;
  for (const models::TensorSpec& t : models::inventory(config)) {
    if (t.mtp || t.layer < 0) continue;
    const bool expert = t.role == expert_up || t.role == expert_down;
    if (t.role == gate || t.role == expert_gate || t.role == gate_up) gated.insert(t.layer);
    if (t.role == bias) biased.insert(t.layer);
    if (t.shape.rank != 2 || t.transposed || !files.has(t.name)) continue;
    if (t.role == up || t.role == expert_up) ups[{t.layer, expert, t.expert}].push_back(t);
    if (t.role == down || t.role == expert_down) downs[{t.layer, expert, t.expert}].push_back(t);
  }
  std::map<std::string, Up> out;
  for (const auto& [key, list] : downs) {
    const int layer = std::get<0>(key);
    const auto found = ups.find(key);
    const bool squared = squares(config.layers[static_cast<size_t>(layer)]);
    if (found == ups.end() || list.size() != 1 || found->second.size() != 1 || biased.contains(layer)) continue;
    if (!squared && !gated.contains(layer)) continue;
    out[files.get(list[0]).name] = {files.get(found->second[0]).name, squared};
  }
  return out;
}

class Calibrator {
 public:
  Calibrator(const io::ModelPath& path, const models::QuantRecipe& recipe,
             std::span<const std::vector<int32_t>> samples, const CalibrateOptions& options)
      : options_(options),
        where_(printable(path.name)),
        config_(models::load_config(path)),
        folder_(models::open_apart(path, config_)),
        files_(path.weights),
        samples_(samples),
        states_(samples.size()) {
    ctx_.threads = options.threads;
    ups_ = up_matrices(config_, *folder_.source);
    check_samples(where_, config_, samples);
    if (options.method == Method::automatic && samples.size() < kHeldEvery)
      fail(where_, {.what = "has too few samples for a choice that a quarter of them judges",
                    .got = std::to_string(samples.size()),
                    .expected = fmt::format("at least {}", kHeldEvery),
                    .hint = "a longer text, shorter windows, or --method gptq"});
    for (models::PlannedMatrix& matrix : models::quant_plan(config_, recipe)) {
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
    for (const Planned& table : tables_) round_to_nearest(table, 0, std::nullopt);
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
  bool pass(int64_t l, Inputs* inputs, std::vector<std::vector<float>>& states,
            const sys::FunctionRef<bool(int64_t)>& step) {
    LayerModel model(config_, l, *folder_.source, values_);
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (!step(static_cast<int64_t>(i))) return false;
      if (inputs) {
        inputs->begin_sample(i % kHeldEvery == kHeldEvery - 1);
        std::vector<float> x = states[i];
        model.forward(ctx_, samples_[i], x, inputs);
      } else {
        model.forward(ctx_, samples_[i], states[i], nullptr);
      }
      if (l + 1 == std::ssize(config_.layers) && !inputs && head_ && !config_.tied) {
        const Tensor x = model.head_input(ctx_, states[i], std::ssize(samples_[i]));
        head_inputs_.begin_sample(i % kHeldEvery == kHeldEvery - 1);
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
      if (options_.method != Method::gptq) {
        fold(planned->second, inputs);
        fold_hidden(planned->second, inputs);
      }
      for (const Planned& p : planned->second) quantise(p, planned->second, inputs);
    }
    const auto second = [&](int64_t sample) { return step(samples + sample); };
    const bool whole = pass(l, nullptr, states_, second);
    values_.clear();
    scales_.clear();
    store_.drop_made();
    return whole;
  }

  void quantise_head() { quantise(*head_, {&*head_, 1}, head_inputs_); }

  const Scales& scale_of(const std::string& name) const {
    static const Scales kNone;
    const auto found = scales_.find(name);
    return found == scales_.end() ? kNone : found->second;
  }

  // With fewer inputs than columns the Hessian is singular: what it does not see would be paid with errors elsewhere.
  bool has_few(const Param& p, const Inputs& inputs) const {
    return inputs.rows(p.name, Part::all) < std::max(options_.rows_min, p.value.cols);
  }

  std::vector<double> gram_of(const std::string& name, const Inputs& inputs, Part part,
                              const std::vector<float>& scale) {
    std::vector<double> gram = inputs.gram(ctx_, name, part);
    if (!std::isfinite(diagonal_of(gram)))
      fail(name, {.what = "its input has a value that is not finite", .hint = "another text, or a sound model"});
    return scale.empty() ? gram : scaled_gram(gram, scale);
  }

  // One of the matrices of a layer.
  void quantise(const Planned& p, std::span<const Planned> planned, const Inputs& inputs) {
    const std::string& name = p.param.name;
    const Scales& scale = scale_of(name);
    const int64_t rows = inputs.rows(name, Part::all);
    const auto scales_of = [this](const std::string& other) -> const Scales& { return scale_of(other); };
    const float global = shared_global(ctx_, planned, p, scales_of, where_);
    if (has_few(p.param, inputs)) {
      out_.few.push_back(fmt::format("{}: {} inputs", name, rows));
      return round_to_nearest(p, global, rows > 0 ? std::optional(inputs.amax(name, scale.cols)) : std::nullopt);
    }
    const std::vector<double> gram = gram_of(name, inputs, Part::all, scale.cols);
    if (diagonal_of(gram) == 0) {
      out_.few.push_back(fmt::format("{}: {} inputs, all zero", name, rows));
      return round_to_nearest(p, global, 0.0f);
    }
    const Rounding rounding(ctx_, p, scale, where_, global);
    models::Encoded best = rounding.nearest();
    const std::vector<float> all = in_f32(gram);
    std::vector<double> errors = rounding.errors_of(&best, all);
    MatrixResult result{.name = name, .role = p.param.role, .format = p.matrix.rule.format, .scaled = scale.any()};
    result.chosen = sum_of(errors);
    result.nearest = !scale.any() ? result.chosen : unscaled_error(p, planned, inputs);
    result.outputs = sum_of(rounding.errors_of(nullptr, all));
    if (wants_feedback(p, rounding, inputs)) {
      const double nearest = result.chosen;
      result.chosen = rounding.take_better(best, errors, rounding.with_feedback(feedback_of(gram, rounding)), all);
      result.feedback = result.chosen < nearest;
    }
    out_.results.push_back(result);
    keep(p, std::move(best), rounding, inputs.amax(name, scale.cols));
  }

  Feedback feedback_of(const std::vector<double>& gram, const Rounding& rounding) const {
    return factor(gram, rounding.cols(), rounding.block(), options_.damping, options_.threads);
  }

  // Of rounding to the nearest.
  double unscaled_error(const Planned& p, std::span<const Planned> planned, const Inputs& inputs) {
    static const Scales kNone;
    const auto scales_of = [](const std::string&) -> const Scales& { return kNone; };
    const Rounding rounding(ctx_, p, {}, where_, shared_global(ctx_, planned, p, scales_of, where_));
    const models::Encoded nearest = rounding.nearest();
    return sum_of(rounding.errors_of(&nearest, in_f32(gram_of(p.param.name, inputs, Part::all, {}))));
  }

  static double diagonal_of(const std::vector<double>& gram) {
    const auto cols = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(gram.size()))));
    double sum = 0;
    for (size_t c = 0; c < cols; ++c) sum += gram[c * cols + c];
    return sum;
  }

  bool wants_feedback(const Planned& p, const Rounding& rounding, const Inputs& inputs) {
    if (options_.method != Method::automatic) return options_.method == Method::gptq;
    const Judged judged = judge(p, rounding, inputs, scale_of(p.param.name).cols);
    return judged.feedback < judged.nearest;
  }

  // Output errors on samples that feedback was not fitted to.
  struct Judged {
    double nearest = 0, feedback = 0;
  };
  Judged judge(const Planned& p, const Rounding& rounding, const Inputs& inputs, const std::vector<float>& scale) {
    const std::string& name = p.param.name;
    if (inputs.rows(name, Part::held) == 0 || inputs.rows(name, Part::fit) == 0) return {};
    const std::vector<double> fit = gram_of(name, inputs, Part::fit, scale);
    const std::vector<float> held = in_f32(gram_of(name, inputs, Part::held, scale)), fitted = in_f32(fit);
    models::Encoded best = rounding.nearest();
    Judged out;
    out.nearest = out.feedback = sum_of(rounding.errors_of(&best, held));
    if (diagonal_of(fit) == 0) return out;
    std::vector<double> errors = rounding.errors_of(&best, fitted);
    rounding.take_better(best, errors, rounding.with_feedback(feedback_of(fit, rounding)), fitted);
    out.feedback = sum_of(rounding.errors_of(&best, held));
    return out;
  }

  // Scales of the channels that each norm of a layer gives to matrices, where they lower the sum of the output errors.
  void fold(const std::vector<Planned>& planned, const Inputs& inputs) {
    if (config_.norm != models::NormKind::rms) return;
    for (const std::string& norm : inputs.norms()) {
      std::vector<const Planned*> quantised;
      std::vector<std::string> kept;
      for (const std::string& reader : inputs.readers(norm)) {
        const auto found =
            std::find_if(planned.begin(), planned.end(), [&](const Planned& p) { return p.param.name == reader; });
        if (found == planned.end())
          kept.push_back(reader);
        else
          quantised.push_back(&*found);
      }
      const std::vector<float> scale = best_scale(quantised, inputs);
      if (scale.empty()) continue;
      const auto tensors = folded_tensors(norm, kept, scale);
      if (!tensors) continue;
      for (const Planned* p : quantised) scales_[p->param.name].cols = scale;
      if (options_.method == Method::automatic && !scales_pay(quantised, inputs)) {
        for (const Planned* p : quantised) scales_[p->param.name].cols.clear();
        continue;
      }
      for (const auto& [name, bytes] : *tensors) place(name, bytes);
    }
  }

  // Scales of what down matrices read, which the rows of up matrices take.
  void fold_hidden(const std::vector<Planned>& planned, const Inputs& inputs) {
    for (const Planned& down : planned) {
      const auto found = ups_.find(down.param.name);
      if (found == ups_.end() || !inputs.has(down.param.name)) continue;
      const bool squared = found->second.squared;
      const std::vector<float> scale = best_scale({&down}, inputs, squared ? 2 : 1);
      if (scale.empty()) continue;
      std::vector<float> rows(scale.size());
      std::transform(scale.begin(), scale.end(), rows.begin(),
                     [&](float s) { return 1 / (squared ? std::sqrt(s) : s); });
      const std::string& up = found->second.name;
      const bool quantised =
          std::any_of(planned.begin(), planned.end(), [&](const Planned& p) { return p.param.name == up; });
      const auto bytes = quantised ? std::nullopt : scaled_rows(up, rows);
      if (!quantised && !bytes) continue;
      scales_[down.param.name].cols = scale;
      if (options_.method == Method::automatic && !scales_pay({&down}, inputs)) {
        scales_.erase(down.param.name);
        continue;
      }
      if (quantised)
        scales_[up].rows = rows;
      else
        place(up, *bytes);
    }
  }

  // Of an unquantised matrix, whose columns may be scaled already.
  std::optional<std::vector<std::byte>> scaled_rows(const std::string& name, const std::vector<float>& rows) const {
    const View* stored = files_.find(name);
    if (!stored || !is_plain(*stored) || stored->shape.rank != 2 || stored->dim(0) != std::ssize(rows))
      return std::nullopt;
    const auto before = out_.folded.find(name);
    return folded_rows(
        before == out_.folded.end() ? *stored : View(before->second.data(), stored->dtype, stored->shape), rows);
  }

  static bool is_plain(const View& v) {
    return v.dtype == DType::bf16 || v.dtype == DType::f16 || v.dtype == DType::f32;
  }

  // Of the candidates the one with the least sum of errors of rounding to the nearest; none: without scales.
  std::vector<float> best_scale(const std::vector<const Planned*>& quantised, const Inputs& inputs, double step = 1) {
    std::vector<std::vector<float>> candidates(1);
    std::vector<double> sums;
    for (const Planned* p : quantised) {
      const std::string& name = p->param.name;
      if (has_few(p->param, inputs)) continue;
      if (sums.empty()) {
        const std::vector<double> magnitudes = inputs.magnitudes(name);
        for (const double alpha : kFoldAlphas) candidates.push_back(fold_scales(magnitudes, alpha, step));
        sums.resize(candidates.size());
      }
      const std::vector<double> gram =
          gram_of(name, inputs, options_.method == Method::awq ? Part::all : Part::fit, {});
      for (size_t i = 0; i < candidates.size(); ++i) {
        const Rounding rounding(ctx_, *p, {.cols = candidates[i]}, where_);
        const models::Encoded nearest = rounding.nearest();
        sums[i] += sum_of(
            rounding.errors_of(&nearest, in_f32(candidates[i].empty() ? gram : scaled_gram(gram, candidates[i]))));
      }
    }
    if (sums.empty()) return {};
    return candidates[static_cast<size_t>(std::min_element(sums.begin(), sums.end()) - sums.begin())];
  }

  // Whether scales that were chosen lower the errors on held-out samples, with feedback where it helps.
  bool scales_pay(const std::vector<const Planned*>& quantised, const Inputs& inputs) {
    double with = 0, without = 0;
    for (const Planned* p : quantised) {
      if (has_few(p->param, inputs)) continue;
      const auto error = [&](const Scales& scales) {
        const Judged judged = judge(*p, Rounding(ctx_, *p, scales, where_), inputs, scales.cols);
        return std::min(judged.nearest, judged.feedback);
      };
      Scales scales = scale_of(p->param.name);
      with += error(scales);
      scales.cols.clear();
      without += error(scales);
    }
    return with < without;
  }

  // The norm and the unquantised matrices that read it, by name; nothing where one of them is stored in a type that
  // would round, or in codes.
  std::optional<std::map<std::string, std::vector<std::byte>>> folded_tensors(const std::string& norm,
                                                                              const std::vector<std::string>& kept,
                                                                              const std::vector<float>& scale) {
    std::map<std::string, std::vector<std::byte>> out;
    const auto add = [&](const std::string& name, bool divide) {
      const View* stored = files_.find(name);
      if (!stored || !is_plain(*stored) || stored->dim(stored->shape.rank - 1) != std::ssize(scale)) return false;
      auto bytes = folded(*stored, scale, divide);
      if (bytes) out[name] = std::move(*bytes);
      return bytes.has_value();
    };
    if (!add(norm, true)) return std::nullopt;
    for (const std::string& name : kept) {
      if (!add(name, false)) return std::nullopt;
    }
    return out;
  }

  // Norms are read as FP32, matrices as they are stored.
  void place(const std::string& name, const std::vector<std::byte>& bytes) {
    const View* stored = files_.find(name);
    out_.folded[name] = bytes;
    const View view(out_.folded[name].data(), stored->dtype, stored->shape);
    if (stored->shape.rank == 2) {
      values_[name] = dense_weight(view);
      return;
    }
    const MutView values = store_.make(DType::f32, {1, view.count()});
    for (int64_t i = 0; i < view.count(); ++i) values.as<float>()[i] = static_cast<float>(element(view, i));
    values_[name] = dense_weight(values);
  }

  void round_to_nearest(const Planned& p, float global, std::optional<float> amax) {
    const Rounding rounding(ctx_, p, scale_of(p.param.name), where_, global);
    keep(p, rounding.nearest(), rounding, amax);
  }

  void keep(const Planned& p, models::Encoded matrix, const Rounding& rounding, std::optional<float> amax) {
    rounding.measure(matrix);
    const float global = rounding.global();
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
  models::OpenApart folder_;
  io::Safetensors files_;
  std::span<const std::vector<int32_t>> samples_;
  std::vector<std::vector<float>> states_;  // of the samples, before the next layer
  std::vector<Planned> tables_, of_experts_;
  std::optional<Planned> head_;
  std::map<int, std::vector<Planned>> layers_;
  std::map<std::string, Up> ups_;  // by down matrix
  Arena arena_;
  Ctx ctx_{.arena = arena_};
  Inputs head_inputs_;
  WeightStore store_;
  std::map<std::string, Weight> values_;  // of the layer's quantised matrices, made in store_
  std::map<std::string, Scales> scales_;  // of its matrices
  Calibrated out_;
};

}  // namespace

Calibrated calibrate(const io::ModelPath& path, const models::QuantRecipe& recipe,
                     std::span<const std::vector<int32_t>> samples, const CalibrateOptions& options,
                     const Progress& progress) {
  return Calibrator(path, recipe, samples, options).run(progress);
}

}  // namespace braid::quant
