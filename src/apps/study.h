// What the studies of `braid repro` that train models have in common.
#pragma once
#include <string>

#include "train/recipe.h"
#include "train/trainer.h"

namespace braid::apps {

// Creates the new folder of a study; from then on a signal stops its trainings (sys/interrupt.h). Error when it exists.
void begin_study(const std::string& folder);
// Trains a language model, with a bar called `name`, on so many threads (0: one per core). False: a signal stopped it.
bool train_for_study(const train::Recipe& recipe, int64_t threads, const std::string& name,
                     train::Watcher watcher = {});

}  // namespace braid::apps
