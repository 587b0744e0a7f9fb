// Formats under a budget of bits (`braid quantize --bits`): the layers' sensitivities (quant/sensitivity.h), and a
// choice among them by the multiple-choice knapsack (compress/choice.h).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "apps/calibration.h"
#include "quant/sensitivity.h"

namespace braid::apps {

struct BitsChoice {
  bool whole = false;  // false: stopped
  models::QuantRecipe recipe{};
  std::vector<std::pair<quant::SensitiveGroup, quant::FormatCost>> groups{};
  double kl = 0, bound = 0;  // the sum of the chosen groups' divergences, and the least that it could be
  int64_t samples = 0;
};

// `bits` are those of a value of the whole model, with all that stays as it is; `recipe` says which matrices may be
// quantised, and by one of its formats in which layout. Error where even the smallest formats need more bits.
BitsChoice choose_bits(const CalibrationArgs& o, const models::QuantRecipe& recipe, double bits,
                       const std::vector<std::vector<int32_t>>& samples);

std::string bits_table(const BitsChoice& choice);
nlohmann::ordered_json bits_json(const BitsChoice& choice);

}  // namespace braid::apps
