// A limit on thinking ("reasoning budget"): after so many tokens without </think>, the thinking is closed in the
// model's place, as templates write it, and the model answers from what it has thought.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace braid::engine {

struct ReasoningBudget {
  int64_t tokens = -1;             // -1: no limit
  int32_t end = -1;                // the token </think>
  int32_t call = -1;               // the token <tool_call>, which ends thinking too; -1: none
  std::vector<int32_t> closing{};  // "\n</think>\n", with `end` among them
};

// Of one answer whose prompt ended inside <think>. Default: no limit.
class ReasoningLimit {
 public:
  ReasoningLimit() = default;
  explicit ReasoningLimit(ReasoningBudget budget) : budget_(std::move(budget)), open_(budget_.tokens >= 0) {}

  // The token that comes next, given the one that was sampled.
  int32_t next(int32_t sampled) {
    if (written_ == 0 && (sampled == budget_.end || sampled == budget_.call)) open_ = false;
    if (!open_) return sampled;
    if (count_ < budget_.tokens) {
      ++count_;
      return sampled;
    }
    const int32_t forced = budget_.closing[written_++];
    open_ = written_ < budget_.closing.size();
    return forced;
  }

 private:
  ReasoningBudget budget_{};
  bool open_ = false;
  int64_t count_ = 0;   // tokens of thinking
  size_t written_ = 0;  // of the closing
};

}  // namespace braid::engine
