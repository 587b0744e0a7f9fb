// The environments that need no other program, as rows of a table: how a problem is drawn, and what is right.
#pragma once
#include <span>

#include "environments/environment.h"

namespace braid::environments {

struct BuiltIn {
  const char* name;
  int64_t levels;
  Problem (*problem)(synth::Draw& draw, int64_t level);
  double (*reward)(const Problem& problem, const std::string& answer);  // the answer without white space around it
};

std::span<const BuiltIn> built_in();

}  // namespace braid::environments
