#include "nn/calibration.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace braid::nn {
namespace {

float amax_of(std::span<const float> values) {
  float amax = 0;
  for (float v : values) amax = std::isfinite(v) ? std::max(amax, std::fabs(v)) : HUGE_VALF;
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

void read_hidden(const ExpertsSeen& seen, int64_t t, int64_t k, std::span<float> out) {
  const auto value = [&](const View& x, int64_t i) {
    return x.dtype == DType::bf16 ? to_float(x.as<Bf16>(t)[i]) : x.as<float>(t)[i];
  };
  const int64_t width = std::ssize(out);
  for (int64_t i = 0; i < width; ++i) {
    const float h = activation(seen.act, value(seen.g ? seen.g : seen.u, k * width + i));
    out[static_cast<size_t>(i)] = seen.g ? h * value(seen.u, k * width + i) : h;
  }
}

void Calibration::product(const Param& w, const View& x, const View&) {
  float& own = amax[&w];
  std::vector<float> row(static_cast<size_t>(x.dim(1)));
  for (int64_t t = 0; t < x.dim(0); ++t) {
    read_row(x, t, row);
    own = std::max(own, amax_of(row));
  }
}

void Calibration::experts(Ctx&, const ExpertsSeen& seen) {
  std::vector<float> row(static_cast<size_t>(seen.x.dim(1))), hidden(static_cast<size_t>(seen.u.dim(2)));
  for (int64_t t = 0; t < seen.x.dim(0); ++t) {
    read_row(seen.x, t, row);
    const float size = amax_of(row);
    for (int64_t k = 0; k < seen.experts.dim(1); ++k) {
      const int32_t expert = seen.experts.as<int32_t>(t)[k];
      raise(amax, seen.up, expert, size);
      raise(amax, seen.gate, expert, size);
      read_hidden(seen, t, k, hidden);
      raise(amax, seen.down, expert, amax_of(hidden));
    }
  }
}

}  // namespace braid::nn
