// Notes on standard error about what was typed. Environment variables that look like Braid's but are not: one that is
// misspelt changes nothing, so it is named. A folder ./tiny, which the argument `tiny` does not mean.
#pragma once
#include <vector>

namespace braid::apps {

struct Page;

// Also a profile of another machine, which is ignored. Error, before anything is computed, for a threshold that is
// none, and for a profile that is missing though named, unless the command writes it. `pages` makes those of all
// commands; called only if a variable begins with BRAID_.
void check_variables(std::vector<Page> (*pages)(), bool writes_profile);
void note_a_folder_named_tiny(int argc, const char* const* argv);

}  // namespace braid::apps
