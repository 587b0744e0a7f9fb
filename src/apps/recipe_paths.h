// An error while a run is opened may be about a path that leads nowhere; then that is what it should say.
#pragma once
#include "sys/error.h"
#include "train/recipe.h"

namespace braid::apps {

// Error about the first path of the recipe that leads nowhere, with what to try; returns where there is none.
void refuse_lost_paths(const train::Recipe& recipe);

// What `open` returns; an Error of it gives way to the one above.
template <class Open>
auto with_paths_of(const train::Recipe& recipe, const Open& open) {
  try {
    return open();
  } catch (const Error&) {
    refuse_lost_paths(recipe);
    throw;
  }
}

}  // namespace braid::apps
