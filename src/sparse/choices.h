// The file of measured choices (plan.h): one JSON object per CPU, of names of ways by the graph,
// the call and its threads. A file that cannot be read or written is as one that is not there.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "sparse/ways.h"

namespace braid::sparse {

// A mark of a table of ways, for keys: with another table a choice is made anew.
uint64_t mark_of(std::span<const Way> ways);

const Way* remembered(const std::string& key);  // null: not measured yet, or not here
void remember(const std::string& key, const Way& way);

}  // namespace braid::sparse
