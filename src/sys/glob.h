// Shell patterns over tensor names: `*` matches any characters, including dots, `?` exactly one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace braid::sys {

bool matches(std::string_view pattern, std::string_view name);
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace braid::sys
