// The result of a command that has one line to say: words for people, or with --json an object for programs.
#pragma once
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace braid::apps {

void print_result(bool json, const nlohmann::ordered_json& object, const std::string& line, std::FILE* to = stdout);

}  // namespace braid::apps
