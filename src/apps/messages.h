// Conversations and tools in JSON files, as chat templates take them.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace braid::apps {

// At least one message, each with a role and text or tool calls; parts of text become one string. Error if the file is
// missing or holds anything else.
nlohmann::ordered_json read_messages(const std::filesystem::path& path);
// An array of functions, each an object, as OpenAI's `tools`.
nlohmann::ordered_json read_tools(const std::filesystem::path& path);
void write_messages(const std::filesystem::path& path, const nlohmann::ordered_json& messages);

}  // namespace braid::apps
