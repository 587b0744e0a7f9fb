// Lines of JSON whose tokens are predicted: {"ids": [1, 2, ...]}, all but the first, or {"prompt": "", "completion":
// ""}, those of the completion. Other keys and blank lines are passed over.
#pragma once
#include <string>
#include <vector>

#include "engine/score.h"

namespace braid::apps {

struct ScoredLine {
  std::string where;  // "F line 3"
  engine::ScoreItem item{};
};

// `file` may be "-". The tokenizer of `model` is only read when a line has text. Errors name the line; `command` is
// whose file is missing.
std::vector<ScoredLine> read_scored_lines(const std::string& command, const std::string& model,
                                          const std::string& file);

// Error, naming the line, where an id is not below `vocab`.
void check_ids(const std::vector<ScoredLine>& lines, int64_t vocab);

}  // namespace braid::apps
