#include "support/data.h"

namespace braid::support {

std::string data(std::string_view name) {
  std::string path = BRAID_SOURCE "/tests/data";
  if (!name.empty()) path.append("/").append(name);
  return path;
}

std::string shipped_tiny() { return BRAID_SOURCE "/models/tiny"; }

}  // namespace braid::support
