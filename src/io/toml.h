// Reading TOML (recipes) into the same typed values as JSON, so that a wrong entry is named the same way:
//   [recipe.toml] optimizer.lr is not a number; got "fast"; expected 0 to 1
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "io/json.h"

namespace braid::io {

// Each override is `key=value` with a dotted key and a TOML value; any other value is taken as a string, so that
// a path needs no quotes. Later ones win. Error with line and column when the text is not TOML; dates are refused.
Json parse_toml(std::string_view text, std::string name, std::span<const std::string> overrides = {});
Json read_toml(const std::filesystem::path& path, std::span<const std::string> overrides = {});

}  // namespace braid::io
