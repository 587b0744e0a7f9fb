#include "apps/result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace braid::apps {

void print_result(bool json, const nlohmann::ordered_json& object, const std::string& line, std::FILE* to) {
  using nlohmann::ordered_json;
  fmt::print(to, "{}\n", json ? object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) : line);
}

}  // namespace braid::apps
