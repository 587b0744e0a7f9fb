// Text among ranks, and what ranks that were started one by one have to be told alike.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "comm/group.h"

namespace braid::comm {

// The text of `root`, on all ranks, all of which call it.
std::string text_of(Group& world, int root, std::string text);

using Words = std::vector<std::pair<std::string, std::string>>;  // an option and its value

// All ranks call it. Error on all of them unless they have the same words in the same order: it names the first that
// differs, of the lowest rank that has another than rank 0. Words of rank 0 are sent to all, others only in an error.
void check_same_words(Group& world, const Words& words);

}  // namespace braid::comm
