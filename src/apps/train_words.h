// What `braid train` says before the first step.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

#include "train/language.h"
#include "train/recipe.h"

namespace braid::apps {

void tell_language(const train::Recipe& recipe, train::Language& language, std::FILE* words);

// From which checkpoint the run goes on, and after which step; empty: from the beginning. `any`: it was to be the
// latest.
void tell_resumption(const train::Recipe& recipe, bool any, const std::string& from, int64_t step, std::FILE* words);

}  // namespace braid::apps
