// A limit on thinking ("reasoning budget"): after so many tokens without </think>, the thinking is closed in the
// model's place, as templates write it, and the model answers from what it has thought. With a grace the thinking may
// first complete its line.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace braid::engine {

struct ReasoningBudget {
  int64_t tokens = -1;                                   // -1: no limit
  int64_t grace = 0;                                     // more tokens until a line ends
  std::shared_ptr<const std::vector<bool>> line_ends{};  // of each token: it ends a line; shared by all answers
  int32_t end = -1;                                      // the token </think>
  int32_t call = -1;                                     // the token <tool_call>, which ends thinking too; -1: none
  std::vector<int32_t> closing{};                        // "\n</think>\n", with `end` among them
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
      return noted(sampled);
    }
    if (written_ == 0 && budget_.grace > 0) {
      if (!line_ended_ && count_ < budget_.tokens + budget_.grace) {
        ++count_;
        return noted(sampled);
      }
      if (line_ended_)  // the closing begins with the end of a line
        while (budget_.closing[written_] != budget_.end) ++written_;
    }
    const int32_t forced = budget_.closing[written_++];
    open_ = written_ < budget_.closing.size();
    return forced;
  }

  // Thinking has ended in another way than by the token.
  void end() { open_ = open_ && written_ > 0; }

 private:
  int32_t noted(int32_t id) {
    const auto at = static_cast<size_t>(id);
    line_ended_ = budget_.line_ends && at < budget_.line_ends->size() && (*budget_.line_ends)[at];
    return id;
  }

  ReasoningBudget budget_{};
  bool open_ = false, line_ended_ = false;
  int64_t count_ = 0;   // tokens of thinking
  size_t written_ = 0;  // of the closing
};

}  // namespace braid::engine
