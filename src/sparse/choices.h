// The file of measured choices (plan.h): one JSON object per CPU, of names of ways by the graph,
// the call and its threads. A file that cannot be read or written is as one that is not there.
#pragma once
#include <string>

#include "sparse/ways.h"

namespace braid::sparse {

const Way* remembered(const std::string& key);  // null: not measured yet, or not here
void remember(const std::string& key, const Way& way);

}  // namespace braid::sparse
