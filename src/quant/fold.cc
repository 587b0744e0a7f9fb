#include "quant/fold.h"

#include <algorithm>
#include <cmath>

namespace braid::quant {

std::vector<float> fold_scales(std::span<const double> magnitudes, double alpha) {
  constexpr double kMost = 8;
  double sum = 0;
  int64_t n = 0;
  for (const double m : magnitudes) {
    if (m > 0) sum += std::log2(m), ++n;
  }
  std::vector<float> scales(magnitudes.size(), 1.0f);
  for (size_t c = 0; c < scales.size(); ++c) {
    if (!(magnitudes[c] > 0)) continue;
    const double exponent = alpha * (std::log2(magnitudes[c]) - sum / static_cast<double>(n));
    scales[c] = static_cast<float>(std::exp2(std::round(std::clamp(exponent, -kMost, kMost))));
  }
  return scales;
}

std::optional<std::vector<std::byte>> folded(const View& tensor, std::span<const float> scales, bool divide) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
  const MutView out(bytes.data(), tensor.dtype, tensor.shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const auto scale = static_cast<double>(scales[static_cast<size_t>(i) % scales.size()]);
    const double value = divide ? element(tensor, i) / scale : element(tensor, i) * scale;
    set_element(out, i, value);
    if (element(out, i) != value) return std::nullopt;
  }
  return bytes;
}

}  // namespace braid::quant
