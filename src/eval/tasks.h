// Tasks with answers that a program can check: a model answers each prompt greedily, and an answer counts when,
// thinking and surrounding space aside, it is one of those accepted. A calculator's call is compared as the text it is.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "sys/function_ref.h"

namespace braid::eval {

struct TaskOptions {
  std::optional<bool> think{};  // nullopt: what the template does by itself
  int64_t tokens_max = 512;     // of an answer, thinking included
};

// Reads {"task", "messages", "tools"?, "answers"} a line. Error, naming the line, on anything else.
std::vector<nlohmann::ordered_json> read_tasks(const std::filesystem::path& path);

struct TaskResult {
  std::string task, reasoning, content;
  bool right = false;
};

// In the order of the rows. `progress` is told how many are done; false stops, and nothing is returned.
std::vector<TaskResult> run_tasks(engine::LanguageModel& model, const std::vector<nlohmann::ordered_json>& rows,
                                  const TaskOptions& options, const sys::FunctionRef<bool(int64_t)>& progress);

struct TaskScore {
  std::string task;
  int64_t right = 0, n = 0;
};
// One score a task, in the order in which they first occur.
std::vector<TaskScore> scores_of(const std::vector<TaskResult>& results);

}  // namespace braid::eval
