// braid bench --tune: the thresholds of products (math/thresholds.h), measured on a model's matrices, and the
// blocking of its training products, as a profile.
#pragma once
#include "engine/language_model.h"

namespace braid::apps {

// Writes the profile where one is read by default, or to the file that BRAID_PROFILE names. Error, before anything is
// measured, where a profile is that --tune did not write, or none can be written. `train_tokens` of training products;
// 0: none of them.
int bench_tune(engine::LanguageModel& model, int rounds, int64_t train_tokens, bool json);

// For `braid bench --list`: every threshold and blocking, its value and where that comes from.
void print_thresholds();

}  // namespace braid::apps
