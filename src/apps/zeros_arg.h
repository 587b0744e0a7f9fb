// --zeros of commands that answer with a model: which of its products skip zeros (models/zero_groups.h).
#pragma once
#include <string>

#include "models/zero_groups.h"
#include "sys/error.h"

namespace braid::apps {

// Error where zeros cannot be skipped, but shall be.
inline models::Zeros zeros_of(const std::string& word, bool exact, bool adapter) {
  if (word == "auto") return models::Zeros::automatic;
  if (word == "multiply") return models::Zeros::multiplied;
  if (exact || adapter) {
    fail("--zeros", {.what = exact ? "--exact multiplies by all values, as training does"
                                   : "with an adapter products multiply by all values",
                     .got = word,
                     .expected = "auto or multiply"});
  }
  return models::Zeros::skipped;
}

}  // namespace braid::apps
