// What ranks tell one another about work that each does alone, such as writing a file: whether it went well.
#pragma once
#include <optional>
#include <string>

#include "comm/group.h"
#include "sys/error.h"

namespace braid::train {

// All ranks make these calls.

// The text of the first rank, on every rank.
std::string told_by_first(comm::Group& world, std::string text);

struct Told {
  int rank = 0;
  std::string text{};
};
// Of the first rank that has something to tell; none: no rank has.
std::optional<Told> first_told(comm::Group& world, const std::string& own);

// The Error of the first rank that has one, with the number of that rank.
std::optional<Error> first_error(comm::Group& world, const std::optional<Error>& own);
// Throws it. The first rank reports it and ends the others.
void agree(comm::Group& world, const std::optional<Error>& own);

}  // namespace braid::train
