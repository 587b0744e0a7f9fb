#include "quant/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "core/integers.h"
#include "models/experts_apart.h"
#include "models/load.h"
#include "quant/layer_model.h"
#include "quant/matrix.h"
#include "quant/samples.h"
#include "sys/error.h"

namespace braid::quant {
namespace {

// KL(softmax(p) || softmax(q)) of logits [V].
double divergence_of(std::span<const float> p, std::span<const float> q) {
  const auto log_sum = [](std::span<const float> logits) {
    const auto most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double sum = 0;
    for (const float v : logits) sum += std::exp(static_cast<double>(v) - most);
    return most + std::log(sum);
  };
  const double p_sum = log_sum(p), q_sum = log_sum(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - p_sum;
    kl += std::exp(log_p) * (log_p - (static_cast<double>(q[i]) - q_sum));
  }
  return kl;
}

class Measure {
 public:
  Measure(const io::ModelPath& path, const models::QuantRecipe& recipe, std::span<const std::vector<int32_t>> samples,
          const SensitivityOptions& options)
      : where_(printable(path.name)),
        config_(models::load_config(path)),
        folder_(models::open_apart(path, config_)),
        samples_(samples) {
    ctx_.threads = options.threads;
    check_samples(where_, config_, samples);
    plan_ = models::quant_plan(config_, recipe);
    config_.mtp.reset();
  }

  std::vector<SensitiveGroup> run(std::span<const QuantFormat> formats,
                                  const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
    const auto groups = grouped();
    const auto total = std::ssize(groups) * std::ssize(formats) + 1;
    int64_t done = 0;
    if (!progress(done++, total)) return {};
    keep_states();
    std::vector<SensitiveGroup> out;
    for (const auto& [key, members] : groups) {
      SensitiveGroup group{.layer = key.first, .matrices = std::ssize(members)};
      int64_t bytes = 0;
      for (const Planned& p : members) {
        group.values += p.param.value.rows * p.param.value.cols;
        bytes += p.param.value.bytes();
        group.roles[p.matrix.tensor.role] = p.matrix.rule.scales;
      }
      for (const QuantFormat format : formats) {
        if (!progress(done++, total)) return {};
        if (const auto cost = cost_of(members, group.layer, format)) group.formats.push_back(*cost);
      }
      group.formats.push_back({.bytes = bytes});
      out.push_back(std::move(group));
    }
    return out;
  }

 private:
  std::map<std::pair<int, ParamRole>, std::vector<Planned>> grouped() const {
    std::map<std::pair<int, ParamRole>, std::vector<Planned>> groups;
    for (const models::PlannedMatrix& matrix : plan_) {
      const bool head = matrix.tensor.role == ParamRole::head && !config_.tied;
      if (matrix.rule.fixed || matrix.tensor.mtp || (matrix.tensor.layer < 0 && !head)) continue;
      groups[{head ? -1 : matrix.tensor.layer, models::joined_role(matrix.tensor.role)}].push_back(
          {matrix, folder_.source->get(matrix.tensor)});
    }
    if (groups.empty())
      fail(where_, {.what = "has no matrix of a layer or head that the recipe quantises", .hint = "another --format"});
    return groups;
  }

  // Layers [first, end) of a sample. The state before the layer, to that after each.
  Tensor pass(models::Model& model, size_t sample, int64_t first, int64_t end, const std::vector<float>& x) {
    const std::vector<int32_t>& ids = samples_[sample];
    const SeqMap seqs = SeqMap::one(std::ssize(ids));
    nn::StateView state;
    nn::Run run{.ctx = ctx_, .seqs = seqs, .state = state, .numerics = Numerics::serving(DType::f32)};
    const Tensor in = first == 0 ? Tensor() : copied_rows(ctx_, x, std::ssize(ids));
    return first == end ? in : model.forward(run, integers(ctx_.arena, ids), in, {first, end - first});
  }

  void keep_states() {
    const std::map<std::string, Weight> none;
    ReplacedSource source(*folder_.source, none);
    base_ = std::make_unique<models::Model>(config_, source);
    states_.resize(samples_.size());
    for (size_t i = 0; i < samples_.size(); ++i) {
      states_[i].emplace_back();
      for (int64_t l = 0; l < std::ssize(config_.layers); ++l) {
        const Tensor x = pass(*base_, i, l, l + 1, states_[i].back());
        const float* values = x.view().as<float>();
        states_[i].emplace_back(values, values + x.view().count());
      }
    }
  }

  // None where the format does not hold them all.
  std::optional<FormatCost> cost_of(std::vector<Planned> members, int layer, QuantFormat format) {
    for (Planned& p : members) {
      if (!models::misfit(p.matrix.tensor, format).empty()) return std::nullopt;
      p.matrix.rule.format = format;
    }
    const auto unscaled = [none = Scales()](const std::string&) -> const Scales& { return none; };
    FormatCost cost{.format = format};
    std::map<std::string, Weight> values;
    WeightStore store;
    for (const Planned& p : members) {
      const Rounding rounding(ctx_, p, {}, where_, shared_global(ctx_, members, p, unscaled, where_));
      const Weight& w = p.param.value;
      values[p.param.name] = models::weight_of(rounding.nearest(), w.rows, w.cols, format, rounding.global(), store);
      for (const io::TensorSpec& spec : models::stored_as("", {w.rows, w.cols}, format)) cost.bytes += spec.bytes();
    }
    ReplacedSource source(*folder_.source, values);
    models::Model model(config_, source);
    const auto layers = std::ssize(config_.layers);
    const int64_t first = layer < 0 ? layers : layer;
    int64_t tokens = 0;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const Tensor x = pass(model, i, first, layers, states_[i][static_cast<size_t>(first)]);
      cost.kl += divergences(model, x, states_[i].back());
      tokens += std::ssize(samples_[i]);
    }
    if (!std::isfinite(cost.kl))  // of NaN, max would make 0
      fail(where_, {.what = fmt::format("the divergence of {} in layer {} is not finite",
                                        name_of(members[0].param.role), layer),
                    .hint = "another text, or a sound model"});
    cost.kl = std::max(0.0, cost.kl / static_cast<double>(tokens));
    return cost;
  }

  // Summed over the tokens; a few of them at a time, as logits are large.
  double divergences(models::Model& model, const Tensor& x, const std::vector<float>& base) {
    constexpr int64_t kRows = 64;
    const Tensor all = copied_rows(ctx_, base, x.dim(0));
    double sum = 0;
    for (int64_t begin = 0; begin < x.dim(0); begin += kRows) {
      const int64_t n = std::min(kRows, x.dim(0) - begin);
      const SeqMap seqs = SeqMap::one(n);
      nn::StateView state;
      nn::Run run{.ctx = ctx_, .seqs = seqs, .state = state, .numerics = Numerics::serving(DType::f32)};
      const Tensor p = base_->logits(run, all.slice(0, begin, n)), q = model.logits(run, x.slice(0, begin, n));
      const auto vocab = static_cast<size_t>(p.dim(1));
      for (int64_t r = 0; r < n; ++r)
        sum += divergence_of({p.view().as<float>(r), vocab}, {q.view().as<float>(r), vocab});
    }
    return sum;
  }

  std::string where_;
  models::Config config_;
  models::OpenApart folder_;
  std::span<const std::vector<int32_t>> samples_;
  std::vector<models::PlannedMatrix> plan_;
  std::unique_ptr<models::Model> base_;
  std::vector<std::vector<std::vector<float>>> states_;  // by sample, before each layer and after the last
  Arena arena_;
  Ctx ctx_{.arena = arena_};
};

}  // namespace

std::vector<SensitiveGroup> sensitivities(const io::ModelPath& path, const models::QuantRecipe& recipe,
                                          std::span<const QuantFormat> formats,
                                          std::span<const std::vector<int32_t>> samples,
                                          const SensitivityOptions& options,
                                          const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
  return Measure(path, recipe, samples, options).run(formats, progress);
}

}  // namespace braid::quant
