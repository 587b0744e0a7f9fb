// Values over several lines, as Python's pprint lays them out: within 80 columns, keys of dicts in order.
#pragma once
#include <string>

#include "text/jinja_value.h"

namespace braid::text::jinja {

// `spend` is told of bytes that were printed, those of nested values once for each level.
std::string to_pretty(const Value& v, const std::function<void(int64_t)>& spend);

}  // namespace braid::text::jinja
