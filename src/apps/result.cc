#include "apps/result.h"
#include "io/ordered_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace braid::apps {

void print_result(bool json, const nlohmann::ordered_json& object, const std::string& line, std::FILE* to) {
  using nlohmann::ordered_json;
  fmt::print(to, "{}\n", json ? io::dumped(object) : line);
}

}  // namespace braid::apps
