#include "quant/matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sys/parallel.h"

namespace braid::quant {
namespace {

Weight dense(const std::vector<float>& values, const Weight& like) {
  return dense_weight(view_of(values.data(), {like.rows, like.cols}));
}

double square(double v) { return v * v; }

float needed_global(Ctx& ctx, const Planned& p, const std::vector<float>& values, const std::string& model) {
  const models::QuantRule& rule = p.matrix.rule;
  return models::measured_global(dense(values, p.param.value), rule.format, rule.scales, {model, name_of(p.param.role)},
                                 ctx.threads);
}

}  // namespace

std::vector<float> scaled_values(const Weight& w, const Scales& scales, int threads) {
  std::vector<float> values(static_cast<size_t>(w.rows * w.cols));
  models::for_each_row(w, threads, [&](int64_t r, std::span<const float> row) {
    float* to = values.data() + r * w.cols;
    const float factor = scales.rows.empty() ? 1.0f : scales.rows[static_cast<size_t>(r)];
    for (size_t c = 0; c < row.size(); ++c) to[c] = row[c] * factor * (scales.cols.empty() ? 1.0f : scales.cols[c]);
  });
  return values;
}

std::vector<double> scaled_gram(std::span<const double> gram, const std::vector<float>& scale) {
  std::vector<double> out(gram.begin(), gram.end());
  const size_t cols = scale.size();
  for (size_t r = 0; r < cols; ++r) {
    for (size_t c = 0; c < cols; ++c)
      out[r * cols + c] /= static_cast<double>(scale[r]) * static_cast<double>(scale[c]);
  }
  return out;
}

std::vector<float> in_f32(std::span<const double> gram) {
  std::vector<float> out(gram.size());
  std::transform(gram.begin(), gram.end(), out.begin(), [](double v) { return static_cast<float>(v); });
  return out;
}

Rounding::Rounding(Ctx& ctx, const Planned& planned, const Scales& scales, const std::string& model, float global)
    : ctx_(ctx),
      planned_(planned),
      scales_(scales),
      values_(scaled_values(planned.param.value, scales, ctx.threads)),
      global_(std::max(global, needed_global(ctx, planned, values_, model))),
      coder_(planned.matrix.rule.format, {this->global(), planned.matrix.rule.scales}) {}

float shared_global(Ctx& ctx, std::span<const Planned> planned, const Planned& one, const ScalesOf& scales_of,
                    const std::string& model) {
  const auto key = models::scale_key(one.param);
  float global = 0;
  for (const Planned& p : planned) {
    if (models::scale_key(p.param) == key && p.matrix.rule.format == one.matrix.rule.format)
      global = std::max(
          global, needed_global(ctx, p, scaled_values(p.param.value, scales_of(p.param.name), ctx.threads), model));
  }
  return global;
}

models::Encoded Rounding::nearest() const {
  const models::QuantRule& rule = planned_.matrix.rule;
  return models::encode(dense(values_, planned_.param.value), rule.format, global(), rule.scales, ctx_.threads);
}

models::Encoded Rounding::with_feedback(const Feedback& feedback) const {
  return encode_with_feedback(values_, coder_, feedback, codec_of(planned_.matrix.rule.format).largest, ctx_.threads);
}

std::vector<double> Rounding::errors_of(const models::Encoded* encoded, std::span<const float> gram) const {
  return unscaled(output_errors(ctx_, encoded ? differences(*encoded) : values_, gram, planned_.param.value.cols));
}

void Rounding::measure(models::Encoded& encoded) const {
  const std::vector<float> differ = differences(encoded);
  const auto cols = static_cast<size_t>(planned_.param.value.cols);
  encoded.error = encoded.square = 0;
  for (size_t i = 0; i < values_.size(); ++i) {
    double scale = scales_.rows.empty() ? 1.0 : static_cast<double>(scales_.rows[i / cols]);
    if (!scales_.cols.empty()) scale *= static_cast<double>(scales_.cols[i % cols]);
    encoded.error += square(static_cast<double>(differ[i]) / scale);
    encoded.square += square(static_cast<double>(values_[i]) / scale);
  }
}

std::vector<float> Rounding::differences(const models::Encoded& encoded) const {
  const auto cols = static_cast<size_t>(planned_.param.value.cols);
  const size_t codes = coder_.code_bytes(planned_.param.value.cols),
               scales = coder_.scale_bytes(planned_.param.value.cols);
  std::vector<float> errors(values_.size());
  sys::parallel_for(ctx_.threads, planned_.param.value.rows, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> row(cols);
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      coder_.decode(encoded.codes.data() + r * codes, encoded.scales.data() + r * scales, row);
      for (size_t c = 0; c < cols; ++c) errors[r * cols + c] = values_[r * cols + c] - row[c];
    }
  });
  return errors;
}

std::vector<double> Rounding::unscaled(std::vector<double> errors) const {
  for (size_t r = 0; r < scales_.rows.size(); ++r) errors[r] /= square(static_cast<double>(scales_.rows[r]));
  return errors;
}

double Rounding::take_better(models::Encoded& own, std::vector<double>& own_errors, const models::Encoded& other,
                             std::span<const float> gram) const {
  const std::vector<double> errors = errors_of(&other, gram);
  const size_t codes = coder_.code_bytes(planned_.param.value.cols),
               scales = coder_.scale_bytes(planned_.param.value.cols);
  for (size_t r = 0; r < errors.size(); ++r) {
    if (!(errors[r] < own_errors[r])) continue;
    own_errors[r] = errors[r];
    std::copy_n(other.codes.data() + r * codes, codes, own.codes.data() + r * codes);
    std::copy_n(other.scales.data() + r * scales, scales, own.scales.data() + r * scales);
  }
  return std::accumulate(own_errors.begin(), own_errors.end(), 0.0);
}

}  // namespace braid::quant
