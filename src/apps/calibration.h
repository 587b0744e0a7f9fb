// Calibration data of `braid quantize`: the text of --data, what is measured over it, and the methods that use it.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/quantize.h"
#include "quant/calibrate.h"

namespace braid::apps {

struct CalibrationArgs {
  std::string model, data, method = "rtn";
  int64_t samples = 128, length = 512;
  bool length_is_default = false;  // which models with fewer positions shorten
  int threads = 1;
};

// The largest input of every matrix over the whole text (engine/calibrate.h); empty if stopped.
std::map<std::string, float> measured_inputs(const CalibrationArgs& o);

// Windows of `length` tokens (set to what the model's positions allow if it is a default), `samples` of them evenly
// spaced over the text, or all that it has.
std::vector<std::vector<int32_t>> calibration_samples(CalibrationArgs& o);

// Not whole if stopped.
quant::Calibrated calibrated(const CalibrationArgs& o, const models::QuantRecipe& recipe,
                             const std::vector<std::vector<int32_t>>& samples);

// Output errors by role and format, as a table.
std::string outputs_table(const quant::Calibrated& calibrated);
nlohmann::ordered_json outputs_json(const quant::Calibrated& calibrated);

}  // namespace braid::apps
