// Where the data of tests lie (tests/data). The path is in one object, so that those of the tests are the same wherever
// the sources are.
#pragma once
#include <string>
#include <string_view>

namespace braid::support {

std::string data(std::string_view name = {});  // tests/data/NAME
std::string shipped_tiny();                    // models/tiny

}  // namespace braid::support
