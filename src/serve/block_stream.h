// An answer as a sequence of blocks: reasoning, text and tool calls, one after the other. What the streams of Responses
// and Messages share; a whole answer is the sum of the same blocks.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serve/answer_stream.h"
#include "serve/asked.h"
#include "text/tool_calls.h"

namespace braid::serve {

class BlockStream : public AnswerStream {
 public:
  explicit BlockStream(Asked asked) : asked_(std::move(asked)), calls_(asked_.tools, asked_.bare_calls) {}
  std::string news(size_t i, const Reply::News& news) final;
  std::string end(size_t i, const Outcome& outcome) final;
  // The answer, once it has ended.
  virtual nlohmann::ordered_json whole(const std::vector<const Outcome*>& outcomes) = 0;

 protected:
  enum class Block { none, reasoning, text, call };
  // The events for them. `name` is that of a call.
  virtual std::string start(int64_t cached_tokens) = 0;  // before all others
  virtual std::string open(Block block, const std::string& name) = 0;
  virtual std::string add(Block block, const std::string& text) = 0;
  virtual std::string close(Block block, bool complete) = 0;

  const Asked& asked() const { return asked_; }
  // Tokens whose text has not been added to a block yet, or was not worth a block; for log-probabilities.
  std::vector<std::vector<engine::TokenLogprob>>& unplaced() { return unplaced_; }
  // Ends the block that is open, for an answer that has failed.
  std::string break_off() { return change(Block::none, "", false); }
  bool called() const { return called_; }  // the last call is complete

 private:
  std::string say(const Reply::Parts& text);
  std::string change(Block block, const std::string& name = "", bool complete = true);
  std::string put(const std::vector<text::AnswerPiece>& pieces);

  Asked asked_;
  text::ToolCallStream calls_;
  Block block_ = Block::none;
  bool called_ = false;
  Said said_;  // kept for an answer that must not be empty
  std::vector<std::vector<engine::TokenLogprob>> unplaced_;
};

// A server-sent event with the name that its JSON has as its type.
std::string named_event(const nlohmann::ordered_json& json);

}  // namespace braid::serve
