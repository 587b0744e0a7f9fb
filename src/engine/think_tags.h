// Where an answer stands: before its thinking, inside it, or past it. Tags may be one token or many, so only the text
// is examined. engine/reasoning.h, which splits what is shown, also takes a second <think> that follows the first.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace braid::engine {

// none: the text is the answer. may_open: a <think> may come before anything else but white space; some models write
// the tag themselves. open: the text is thinking up to </think>, or to <tool_call>, which some models write without it.
enum class Thinking : uint8_t { none, may_open, open };

inline constexpr std::string_view kThinkBegin = "<think>", kThinkEnd = "</think>", kCallBegin = "<tool_call>",
                                  kThinkSpace = " \t\r\n";  // may stand before the first

class ThinkTags {
 public:
  explicit ThinkTags(Thinking thinking) : state_(thinking) {}

  // After a piece of text.
  struct Next {
    Thinking state = Thinking::none;
    std::string held{};    // what may be the beginning of a tag
    std::string answer{};  // the part of the text, held text included, that belongs to the answer
    size_t before = 0;     // bytes of `answer` that were held before the piece
  };
  Next after(std::string_view piece) const;
  void take(Next next) {
    state_ = next.state;
    held_ = std::move(next.held);
  }

  Thinking state() const { return state_; }
  const std::string& held() const { return held_; }

 private:
  Thinking state_;
  std::string held_;
};

}  // namespace braid::engine
