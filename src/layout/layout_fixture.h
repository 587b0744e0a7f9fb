// Models and clusters of these tests.
#pragma once
#include "layout/search.h"
#include "models/family.h"
#include "models/presets.h"

namespace braid::layout {

inline Model model_of(const char* preset, int64_t length) {
  models::Config config = models::read_config(*models::find_preset(preset));
  train::Recipe recipe;
  recipe.loss.mtp_scale = config.mtp ? 0.3 : 0;
  return {std::move(config), std::move(recipe), length};
}

inline Machine machine_of(const char* preset, int64_t ranks) { return with_ranks(*machine_preset(preset), ranks); }

}  // namespace braid::layout
