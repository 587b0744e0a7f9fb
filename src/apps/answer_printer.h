// Prints an answer as it arrives: the answer itself on standard output, thinking on standard error, dimmed, or between
// its tags if there is no colour; and dimmed notes. A tool call is one line, without its tags, unless the text is
// `raw`.
#pragma once
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/generate.h"
#include "engine/reasoning.h"

namespace braid::apps {

class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool raw = false);
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;
  ~AnswerPrinter();
  void print(const engine::ReasoningSplitter::Parts& parts);
  void end();                                // of the answer: closes what is open
  void note(const std::string& line) const;  // on standard error
  void speed(const engine::Timings& t, int64_t cached_tokens) const;

 private:
  void put(const std::string& piece, std::FILE* stream);
  void put_answer(const std::string& piece);
  void end_thinking();

  const char *dim_, *plain_;
  bool raw_, tags_, thinking_ = false;
  char last_ = '\n';  // what the terminal saw last
  std::string held_;  // of the answer: a call that has not ended, or a possible beginning of its tag
  bool in_call_ = false;
};

nlohmann::ordered_json timings_json(const engine::Timings& t);

}  // namespace braid::apps
