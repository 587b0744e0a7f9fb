// Whether several regular expressions have a text in common.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "grammar/regex.h"

namespace braid::grammar {

// Counts down `steps`; nullopt when there are none left, or where repetitions are too many to be unrolled.
std::optional<bool> have_common_text(std::span<const Regex> all, int64_t& steps);

}  // namespace braid::grammar
