// Splits streamed text into reasoning and answer. A reasoning model's prompt ends inside <think>, so the text up to
// </think> is reasoning; <tool_call> ends it too, since some models omit the closing tag (nemotron.md 6.4). Tags may be
// one token or many: only the text is examined, and a possible beginning of a tag is held back.
#pragma once
#include <string>
#include <string_view>

namespace braid::engine {

class ReasoningSplitter {
 public:
  struct Parts {
    std::string reasoning, content;
  };
  // `thinking`: the prompt ended inside <think>.
  explicit ReasoningSplitter(bool thinking) : thinking_(thinking) {}
  Parts push(std::string_view text);
  Parts finish();
  bool thinking() const { return thinking_; }

 private:
  bool thinking_;
  bool trim_ = true;  // newlines at the beginning of a part belong to the tags
  std::string held_;
};

// Does the rendered prompt end in an open <think>?
bool ends_in_think(std::string_view prompt);

}  // namespace braid::engine
