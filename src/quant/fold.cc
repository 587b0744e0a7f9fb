#include "quant/fold.h"

#include <algorithm>
#include <cmath>

namespace braid::quant {

std::vector<float> fold_scales(std::span<const double> magnitudes, double alpha, double step) {
  constexpr double kMost = 3;
  double sum = 0;
  int64_t n = 0;
  for (const double m : magnitudes) {
    if (m > 0) sum += std::log2(m), ++n;
  }
  std::vector<float> scales(magnitudes.size(), 1.0f);
  for (size_t c = 0; c < scales.size(); ++c) {
    if (!(magnitudes[c] > 0)) continue;
    const double exponent = alpha * (std::log2(magnitudes[c]) - sum / static_cast<double>(n));
    scales[c] = static_cast<float>(std::exp2(step * std::round(std::clamp(exponent, 0.0, kMost) / step)));
  }
  return scales;
}

namespace {

template <class Factor>
std::optional<std::vector<std::byte>> multiplied(const View& tensor, const Factor& factor) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
  const MutView out(bytes.data(), tensor.dtype, tensor.shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const double value = element(tensor, i) * factor(static_cast<size_t>(i));
    set_element(out, i, value);
    if (element(out, i) != value) return std::nullopt;
  }
  return bytes;
}

}  // namespace

std::optional<std::vector<std::byte>> folded(const View& tensor, std::span<const float> scales, bool divide) {
  return multiplied(tensor, [&](size_t i) {
    const auto scale = static_cast<double>(scales[i % scales.size()]);
    return divide ? 1 / scale : scale;
  });
}

std::optional<std::vector<std::byte>> folded_rows(const View& matrix, std::span<const float> scales) {
  const auto cols = static_cast<size_t>(matrix.dim(1));
  return multiplied(matrix, [&](size_t i) { return static_cast<double>(scales[i / cols]); });
}

}  // namespace braid::quant
