// What calibration and sensitivity expect of their samples.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ctx.h"
#include "core/tensor.h"
#include "models/config.h"

namespace braid::quant {

// Error, naming the model, for one with a loop of layers, for no sample, an empty one, and for ids outside of the
// vocabulary.
void check_samples(const std::string& where, const models::Config& config,
                   std::span<const std::vector<int32_t>> samples);

// [rows, columns] F32.
Tensor copied_rows(Ctx& ctx, const std::vector<float>& values, int64_t rows);

}  // namespace braid::quant
