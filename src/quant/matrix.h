// One matrix on its way to codes: its values with scaled input channels, what they are multiplied by, and the output
// errors of roundings of them.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/quant_plan.h"
#include "models/quantize.h"
#include "quant/feedback.h"
#include "quant/inputs.h"

namespace braid::quant {

// A matrix that a recipe quantises, with its values in the files.
struct Planned {
  models::PlannedMatrix matrix{};
  Param param{};
};

// Powers of two by which a matrix is multiplied before it is rounded, and its inputs or outputs are divided; none: 1.
struct Scales {
  std::vector<float> cols{}, rows{};

  bool any() const { return !cols.empty() || !rows.empty(); }
};

// [rows, cols] in F32.
std::vector<float> scaled_values(const Weight& w, const Scales& scales, int threads);
// G of inputs that were divided by the scales, in F32.
std::vector<double> scaled_gram(std::span<const double> gram, const std::vector<float>& scale);
std::vector<float> in_f32(std::span<const double> gram);

// Values, and how they are rounded.
class Rounding {
 public:
  // `global` is the scale of the whole tensor, if it is larger than the matrix needs. Error, naming the model, where a
  // value is not finite or too large for the format.
  Rounding(Ctx& ctx, const Planned& planned, const Scales& scales, const std::string& model, float global = 0);

  models::Encoded nearest() const;
  models::Encoded with_feedback(const Feedback& feedback) const;
  // Those rows of `other` whose output errors are lower take the place of those of `own`; returns the sum of the errors
  // that remain. `own_errors` are updated.
  double take_better(models::Encoded& own, std::vector<double>& own_errors, const models::Encoded& other,
                     std::span<const float> gram) const;
  // The error of what the files hold, over values as they were before scales, into `encoded`.
  void measure(models::Encoded& encoded) const;
  // Output errors by row of a rounding, those of outputs without scales of rows; e = w where it is null.
  std::vector<double> errors_of(const models::Encoded* encoded, std::span<const float> gram) const;

  int64_t cols() const { return planned_.param.value.cols; }
  int64_t block() const { return coder_.block(); }
  float global() const { return global_ > 0 ? global_ : 1; }

 private:
  std::vector<double> unscaled(std::vector<double> errors) const;
  // values_ - rounding, as scaled.
  std::vector<float> differences(const models::Encoded& encoded) const;

  Ctx& ctx_;
  const Planned& planned_;
  Scales scales_;
  std::vector<float> values_;
  float global_;  // 0: all values are zeros
  BlockCoder coder_;
};

// The scale of whole tensors that readers want `one` to share with others of `planned` (models::scale_key), each scaled
// as `scales_of` its name says.
using ScalesOf = sys::FunctionRef<const Scales&(const std::string&)>;
float shared_global(Ctx& ctx, std::span<const Planned> planned, const Planned& one, const ScalesOf& scales_of,
                    const std::string& model);

}  // namespace braid::quant
