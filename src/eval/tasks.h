// Tasks with answers that a program can check: a model answers each prompt greedily, which counts when, apart from
// thinking and surrounding space, it is one of the accepted answers. A calculator call is compared as text.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/draft.h"
#include "engine/language_model.h"
#include "sys/function_ref.h"

namespace braid::eval {

struct TaskOptions {
  std::optional<bool> think{};         // nullopt: the template's default
  int64_t tokens_max = 512;            // of an answer, thinking included
  int64_t budget = -1;                 // tokens of thinking; -1: no limit of its own
  bool drafts = false;                 // count the drafts of the prediction block, which the model then must have
  engine::DraftOptions speculation{};  // for speed: no answer depends on it
};

// Reads one {"task", "messages", "tools"?, "answers"} per line. Error, naming the line, on anything else.
std::vector<nlohmann::ordered_json> read_tasks(const std::filesystem::path& path);

struct TaskResult {
  std::string task, reasoning, content;
  bool right = false;
  bool cut = false;  // by the limit of tokens or the context, which may have left it no room at all
  // Tokens of the answer after its first, and how many of them the prediction block (MTP) would have drafted: those a
  // speculative decoder accepts at one draft per step.
  int64_t drafted = 0, accepted = 0;
};

// In the order of the rows. `progress` receives the number done; if it returns false, the run stops and nothing is
// returned.
std::vector<TaskResult> run_tasks(engine::LanguageModel& model, const std::vector<nlohmann::ordered_json>& rows,
                                  const TaskOptions& options, const sys::FunctionRef<bool(int64_t)>& progress);

struct TaskScore {
  std::string task;
  int64_t right = 0, n = 0, cut = 0, drafted = 0, accepted = 0;

  double accuracy() const { return static_cast<double>(right) / static_cast<double>(n); }
  // 95%, of a share: Wilson's score interval (JASA 22, 1927), which holds for few answers and near 0 and 1, too.
  std::pair<double, double> interval() const;
};
// One score per task, in order of first occurrence.
std::vector<TaskScore> scores_of(const std::vector<TaskResult>& results);

}  // namespace braid::eval
