// Relative paths in a recipe are relative to the working directory. Errors point this out when a run was started in
// another directory, or before its data was generated.
#pragma once
#include <filesystem>

#include "sys/error.h"
#include "train/recipe.h"

namespace braid::apps {

// Error about the first path of the recipe that leads nowhere, with where it starts and what to try; returns where
// there is none, or only what may be the name of a model.
void refuse_lost_paths(const std::filesystem::path& file, const train::Recipe& recipe);

// What `open` returns; an Error of it gives way to the one above.
template <class Open>
auto with_paths_of(const std::filesystem::path& file, const train::Recipe& recipe, const Open& open) {
  try {
    return open();
  } catch (const Error&) {
    refuse_lost_paths(file, recipe);
    throw;
  }
}

}  // namespace braid::apps
