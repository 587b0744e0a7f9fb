#include "nn/calibration.h"

#include <algorithm>
#include <cmath>

namespace braid::nn {
namespace {

float value(const View& x, int64_t row, int64_t i) {
  return x.dtype == DType::bf16 ? to_float(x.as<Bf16>(row)[i]) : x.as<float>(row)[i];
}

float larger(float amax, float v) { return std::isfinite(v) ? std::max(amax, std::fabs(v)) : HUGE_VALF; }

float amax_of(const View& x, int64_t row) {
  float amax = 0;
  for (int64_t i = 0; i < x.dim(1); ++i) amax = larger(amax, value(x, row, i));
  return amax;
}

float activation(ExpertAct act, float v) {
  return act == ExpertAct::silu ? v / (1 + std::exp(-v)) : v > 0 ? v * v : v * 0;
}

// w has a parameter for each expert, or none: gates that a model lacks.
void raise(std::map<const Param*, float>& amax, std::span<const Param> w, int32_t expert, float size) {
  if (std::ssize(w) <= expert) return;
  float& own = amax[&w[static_cast<size_t>(expert)]];
  own = std::max(own, size);
}

}  // namespace

void Calibration::see(const Param& w, const View& x) {
  float& own = amax[&w];
  for (int64_t t = 0; t < x.dim(0); ++t) own = std::max(own, amax_of(x, t));
}

void Calibration::see_rows(std::span<const Param> w, const View& x, const View& experts) {
  for (int64_t t = 0; t < x.dim(0); ++t) {
    const float size = amax_of(x, t);
    for (int64_t k = 0; k < experts.dim(1); ++k) raise(amax, w, experts.as<int32_t>(t)[k], size);
  }
}

void Calibration::see_hidden(std::span<const Param> down, const View& u, const View& g, const View& experts,
                             ExpertAct act) {
  const int64_t chosen = u.dim(1), width = u.dim(2);
  for (int64_t t = 0; t < u.dim(0); ++t) {
    for (int64_t k = 0; k < chosen; ++k) {
      float size = 0;
      for (int64_t i = k * width; i < (k + 1) * width; ++i) {
        const float h = activation(act, value(g ? g : u, t, i));
        size = larger(size, g ? h * value(u, t, i) : h);
      }
      raise(amax, down, experts.as<int32_t>(t)[k], size);
    }
  }
}

}  // namespace braid::nn
