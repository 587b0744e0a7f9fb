#include "quant/samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "sys/error.h"

namespace braid::quant {

void check_samples(const std::string& where, const models::Config& config,
                   std::span<const std::vector<int32_t>> samples) {
  if (config.loop)
    fail(where,
         {.what = "has layers that run several times, which calibration does not support", .hint = "--method rtn"});
  if (samples.empty())
    fail(where, {.what = "has no calibration samples", .hint = "a longer text, or a smaller --length"});
  for (const std::vector<int32_t>& ids : samples) {
    if (ids.empty()) fail(where, {.what = "has a calibration sample without tokens"});
    for (const int32_t id : ids) {
      if (id < 0 || id >= config.vocab)
        fail(where, {.what = "a sample has a token outside of the vocabulary",
                     .got = std::to_string(id),
                     .expected = fmt::format("0 to {}", config.vocab - 1)});
    }
  }
}

Tensor copied_rows(Ctx& ctx, const std::vector<float>& values, int64_t rows) {
  const Tensor x(ctx.arena, DType::f32, {rows, std::ssize(values) / rows});
  std::copy(values.begin(), values.end(), x.mut().as<float>());
  return x;
}

}  // namespace braid::quant
