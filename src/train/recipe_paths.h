// Paths of a recipe: those in the file start in its folder, those of [log] there in `out`, those of the command line in
// the working folder. `init`,
// `tokenizer` and `config` may be names of models or presets, too; they are paths if something is there.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "train/recipe.h"

namespace braid::train {

// Does it exist, be it as Megatron's pair of files, which are named without their endings?
bool leads_somewhere(const std::filesystem::path& path);

// Error, with what it is, for a file or a name that cannot be a recipe: a model, a run, a folder, or nothing.
void check_recipe_file(const std::filesystem::path& file);

// Makes the paths that `overrides` do not set start in `folder`.
void resolve_paths(Recipe& recipe, const std::filesystem::path& folder, std::span<const std::string> overrides);

// The recipe with absolute paths: what a copy of it in another folder needs.
Recipe with_absolute_paths(Recipe recipe);

// The recipe with its paths as seen from `run`, a run's folder: the same wherever one starts it, and after a move.
Recipe with_paths_from(Recipe recipe, const std::filesystem::path& run);

// The first path that leads nowhere and is not the name of a generated source; empty: none.
std::string lost_path(const Recipe& recipe);

}  // namespace braid::train
