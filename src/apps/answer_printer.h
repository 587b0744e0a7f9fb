// An answer as it arrives: the answer itself on standard output, thinking on standard error, dimmed, or between its
// tags where there is no colour; and dimmed notes.
#pragma once
#include <cstdio>
#include <string>

#include "engine/reasoning.h"

namespace braid::apps {

class AnswerPrinter {
 public:
  AnswerPrinter();
  void print(const engine::ReasoningSplitter::Parts& parts);
  void end();                                // of the answer: closes what is open
  void note(const std::string& line) const;  // on standard error

 private:
  void put(const std::string& piece, std::FILE* stream);
  void end_thinking();

  const char *dim_, *plain_;
  bool tags_, thinking_ = false;
  char last_ = '\n';  // what the terminal saw last
};

}  // namespace braid::apps
