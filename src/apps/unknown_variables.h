// Environment variables that look like Braid's but are not: one that is misspelt changes nothing, so it is named, on
// standard error.
#pragma once
#include <vector>

namespace braid::apps {

struct Page;

// `pages` makes those of all commands; called only if a variable begins with BRAID_.
void warn_about_unknown_variables(std::vector<Page> (*pages)());

}  // namespace braid::apps
