// How many tokens of a model are read where the user does not say.
#pragma once
#include <algorithm>
#include <string>

#include "models/load.h"
#include "models/presets.h"

namespace braid::apps {

// So many, or as many as the positions of the model allow.
inline int64_t default_context(const std::string& model, int64_t tokens) {
  const int64_t most = models::load_config(models::find_weights(model)).positions_max;
  return most > 0 ? std::min(tokens, most) : tokens;
}

}  // namespace braid::apps
