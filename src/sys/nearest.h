// The name that a mistyped one was meant to be: for messages about flags, commands and keys.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace braid::sys {

// The candidate that a typing mistake away from `text` lies nearest; empty when none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace braid::sys
