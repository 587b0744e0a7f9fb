// Splits streamed text into reasoning and answer. A reasoning model's prompt ends inside <think>, or the model opens it
// before anything else; the text up to </think> is reasoning. <tool_call> ends it too, since some models omit the
// closing tag (docs/internals/families.md, Reasoning in answers). A <think> inside an answer is part of the answer.
// Tags may be one token or many: only the text is examined, and a possible beginning of a tag is held back.
#pragma once
#include <string>
#include <string_view>

#include "text/partial_tag.h"

namespace braid::engine {

class ReasoningSplitter {
 public:
  struct Parts {
    std::string reasoning, content;
  };
  // `thinking`: the prompt ended inside <think>. `closed`: it ended in </think>, and no form of the answer was
  // demanded: its first newlines are those that the model writes behind the tag.
  explicit ReasoningSplitter(bool thinking, bool closed = false) : thinking_(thinking), trim_(thinking || closed) {}
  Parts push(std::string_view text);
  Parts finish();
  bool thinking() const { return thinking_; }

 private:
  std::string take(size_t n);
  bool read_reasoning(Parts& out);
  bool begin();

  bool thinking_;
  bool trim_;               // newlines at the beginning of a part belong to the tag before it
  bool answering_ = false;  // the answer has begun
  std::string held_;
};

// Does the prompt end in an open <think>, white space aside? In a message the tag would be followed by the rest of the
// template.
bool ends_in_think(std::string_view prompt);

// Does it end in </think> itself?
bool ends_in_closed_think(std::string_view prompt);

using text::partial_tag;

}  // namespace braid::engine
