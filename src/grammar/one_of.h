// oneOf: a value must match exactly one alternative. Generated text matches one of them; this decides whether it can
// match another as well, by types, listed values, bounds, and properties that have other values or that only one
// alternative has.
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

// What the comparisons of one schema may take all together, in steps: of texts that patterns have in common
// (regex_overlap.h; about 0.1 µs each), and of listed texts that are matched (Regex::matches).
struct TextSteps {
  int64_t common = 4'000'000, matching = 4'000'000;
};

// For each alternative a further schema that keeps its values from matching any other: `true`, or one that forbids or
// requires properties, or an element. Alternatives that are known neither to exclude each other nor to overlap (two
// multiples) get `true`. Error, beginning with `where`, if they overlap, or if that takes more work than is
// `left`, or too many values.
std::vector<nlohmann::ordered_json> exclusions(const std::vector<Ways>& alternatives, const WaysOf& ways_of,
                                               TextSteps& left, std::string_view where);

}  // namespace braid::grammar
