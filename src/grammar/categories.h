// Unicode's general categories as sets of characters, by the tables of utf8proc.
#pragma once
#include <optional>
#include <string_view>

#include "grammar/characters.h"

namespace braid::grammar {

// By the name that \p{...} takes: "Lu", "L" (all that begin with it) or "Letter"; no value for any other.
std::optional<CharSet> category(std::string_view name);

}  // namespace braid::grammar
