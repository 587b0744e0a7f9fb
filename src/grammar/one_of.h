// oneOf: exactly one of its alternatives may hold. What is written satisfies one of them; here is decided whether it
// can satisfy another as well, from types, listed values, bounds, properties that tell objects apart and those that
// only one of them has.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace braid::grammar {

// An alternative as the schemas it consists of, which combine no others (schema_merge.h); one of them has to hold.
using Ways = std::vector<nlohmann::ordered_json>;
// The same of any schema inside; nullopt: not known.
using WaysOf = std::function<std::optional<Ways>(const nlohmann::ordered_json&)>;

// What each alternative has to satisfy beside its own schema, so that its texts satisfy no other: `true`, or an object
// that forbids or requires properties, or an element. Where alternatives are not known to exclude each other, but not
// known to overlap either (two patterns), they are left alone. Error, beginning with `where`, where they overlap.
std::vector<nlohmann::ordered_json> exclusions(const std::vector<Ways>& alternatives, const WaysOf& ways_of,
                                               std::string_view where);

}  // namespace braid::grammar
