// JSON whose objects keep the order of their keys, which templates print and grammars follow: requests, conversations,
// schemas, lines of data sets. With limits, as io/json.h has them, but strict: NaN and Infinity are refused.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "io/json.h"

namespace braid::io {

inline constexpr int64_t kOrderedKeysMax = 5000;  // of one object, which is searched key by key

// Error when the text is not JSON or exceeds a limit; it begins with `where`, and where the text is not JSON, it ends
// with what was `expected`.
nlohmann::ordered_json parse_ordered(std::string_view text, const std::string& where, const std::string& expected = {},
                                     JsonLimits limits = {.keys = kOrderedKeysMax});

// The digits of a whole number beyond 64 bits, which JsonLimits::digits kept; nothing for any other value.
std::optional<std::string> digits_of(const nlohmann::ordered_json& json);

// On one line, or indented; what is not UTF-8 in its strings (paths hold any bytes) is replaced.
std::string dumped(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace braid::io
