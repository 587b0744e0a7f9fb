// What `braid quantize` was asked for, and what it prints of the folder that it wrote.
#pragma once
#include <cstdint>
#include <string>

#include "apps/bits.h"
#include "apps/calibration.h"
#include "apps/cli.h"
#include "models/quantize.h"

namespace braid::apps {

struct QuantizeArgs {
  std::string model, out, format = "nvfp4", recipe, scales, head, embedding;
  CalibrationArgs calibration;
  quant::Calibrated method;  // what it did
  double bits = 0;           // 0: formats are the recipe's
  BitsChoice choice;
  int64_t samples = 0;
  models::QuantOptions quant;
  int64_t threads = 0;
  bool mtp = false, json = false;
  const Cli* cli = nullptr;
};

void print_quantized(const QuantizeArgs& o, const models::QuantReport& report);

}  // namespace braid::apps
