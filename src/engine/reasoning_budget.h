// A limit on thinking ("reasoning budget"): after so many tokens without </think>, the thinking is closed in the
// model's place, as templates write it, and the model answers from what it has thought. With a grace the thinking may
// first complete its line.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/think_tags.h"

namespace braid::engine {

struct ReasoningBudget {
  int64_t tokens = -1;                                // -1: no limit
  int64_t grace = 0;                                  // more tokens until a line ends
  std::function<std::string(int32_t)> text_of{};      // of a token
  std::vector<int32_t> closing{}, closing_of_line{};  // "\n</think>\n", and without the first newline
};

// Of one answer. Default: no limit.
class ReasoningLimit {
 public:
  ReasoningLimit() = default;
  ReasoningLimit(ReasoningBudget budget, Thinking thinking)
      : budget_(std::move(budget)), tags_(budget_.tokens >= 0 ? thinking : Thinking::none) {}

  // The token that comes next, given the one that was sampled.
  int32_t next(int32_t sampled) {
    if (closing_) return close();
    if (tags_.state() == Thinking::none) return sampled;
    const std::string text = budget_.text_of(sampled);
    ThinkTags::Next after = tags_.after(text);
    if (tags_.state() == Thinking::open && after.state == Thinking::open) {
      const bool within = count_ < budget_.tokens || (!line_ended_ && count_ < budget_.tokens + budget_.grace);
      if (!within) {
        closing_ = true;
        return close();
      }
      ++count_;
      line_ended_ = text.ends_with('\n') && budget_.grace > 0;
    }
    tags_.take(std::move(after));
    return sampled;
  }

 private:
  int32_t close() {
    const std::vector<int32_t>& ids = line_ended_ ? budget_.closing_of_line : budget_.closing;
    const int32_t id = ids[written_++];
    closing_ = written_ < ids.size();
    tags_ = ThinkTags(Thinking::none);
    return id;
  }

  ReasoningBudget budget_{};
  ThinkTags tags_{Thinking::none};
  bool line_ended_ = false;  // by the last token of the thinking
  bool closing_ = false;     // some of the closing is still to be written
  int64_t count_ = 0;        // tokens of thinking
  size_t written_ = 0;       // of the closing
};

}  // namespace braid::engine
