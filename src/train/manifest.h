// What determines the bits of a run, as one flat list: every word of its recipe that may not change on a resume, and
// facts that no word names (the content of the data and of the model's config). Each checkpoint stores it as
// training/manifest.json; a resumed run compares its own and names each difference.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/json.h"
#include "train/recipe.h"

namespace braid::train {

using Facts = std::vector<std::pair<std::string, std::string>>;  // names with values as JSON

// The fact of what the data says (weight_hash.h). Of files it begins with the second. Checkpoints of versions that
// compared a few batches lack that, which differences() says in one line: whether the data changed is not known.
inline constexpr const char *kContent = "content of the data", *kAllOfFiles = "all ";
inline constexpr const char *kModel = "weights of the model", *kTeacher = "weights of the teacher",
                            *kEdges = "graph";  // facts of other files

// Leaves out what may change on a resume: `out`, `steps`, `accumulate`, `schedule.decay` and the tables memory, eval,
// log, checkpoint and parallel.
// Paths are as seen from `run`, the folder of the run (recipe_paths.h).
Facts manifest_of(const Recipe& recipe, const Facts& facts, const std::filesystem::path& run);
std::string manifest_text(const Facts& manifest);

// "seed is 1 there and 2 here", one entry per difference. A word missing from the stored manifest had its default.
// Where data, a graph or a model lies does not count while the facts of all that it says agree.
std::vector<std::string> differences(const io::Json& stored, const Facts& manifest);

}  // namespace braid::train
