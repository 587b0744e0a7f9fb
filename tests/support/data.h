// The location of the test data (tests/data). The path is in one object file, so that the tests' own object files are
// the same wherever the sources are.
#pragma once
#include <string>
#include <string_view>

namespace braid::support {

std::string data(std::string_view name = {});  // tests/data/NAME
std::string shipped_tiny();                    // models/tiny

}  // namespace braid::support
