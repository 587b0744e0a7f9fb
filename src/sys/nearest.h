// Suggests the name meant by a mistyped one: for messages about flags, commands and keys.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace braid::sys {

// The candidate with the least edit distance to `text`, prefixes first; empty when none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace braid::sys
