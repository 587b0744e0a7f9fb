// An error while a run is opened may be about a path that leads nowhere; then it says what to try.
#pragma once
#include "sys/error.h"
#include "train/recipe.h"

namespace braid::apps {

// Error about the first path of the recipe that leads nowhere, with what to try; returns where there is none, or where
// `error` is not about a file.
void refuse_lost_paths(const train::Recipe& recipe, const Error& error);

// What `open` returns; an Error of it gives way to the one above.
template <class Open>
auto with_paths_of(const train::Recipe& recipe, const Open& open) {
  try {
    return open();
  } catch (const Error& error) {
    refuse_lost_paths(recipe, error);
    throw;
  }
}

}  // namespace braid::apps
