// braid bench --tune: the thresholds of products (math/thresholds.h), measured on a model's matrices, as a profile.
#pragma once
#include "engine/language_model.h"

namespace braid::apps {

// Writes the profile where one is read by default, or to the file that BRAID_PROFILE names. Error, before anything is
// measured, where a profile is that --tune did not write, or none can be written.
int bench_tune(engine::LanguageModel& model, int rounds, bool json);

// For `braid bench --list`: every threshold, its value and where that comes from.
void print_thresholds();

}  // namespace braid::apps
