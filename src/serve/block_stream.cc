#include "serve/block_stream.h"

#include <utility>

#include "engine/generate.h"

namespace braid::serve {

std::string BlockStream::change(Block block, const std::string& name, bool complete) {
  if (block == block_ && block != Block::call) return "";
  std::string out;
  if (block_ != Block::none) out += close(block_, complete);
  block_ = block;
  if (block != Block::none) out += open(block, name);
  return out;
}

std::string BlockStream::put(const std::vector<text::AnswerPiece>& pieces) {
  using Kind = text::AnswerPiece::Kind;
  std::string out;
  for (const text::AnswerPiece& piece : pieces) {
    switch (piece.kind) {
      case Kind::content:
        out += change(Block::text);
        out += add(Block::text, piece.text);
        break;
      case Kind::call:
        called_ = false;
        out += change(Block::call, piece.text);
        break;
      case Kind::arguments:
        out += add(Block::call, piece.text);
        break;
      case Kind::end:
        called_ = piece.complete;
        out += change(Block::none, "", piece.complete);
        break;
    }
  }
  return out;
}

std::string BlockStream::news(size_t, const Reply::News& news) {
  std::string out;
  if (news.admitted) out += start(news.cached_tokens);
  if (asked_.nonempty) {
    said_.reasoning += news.text.reasoning;
    said_.content += news.text.content;
  }
  if (news.tokens_scored.empty()) return out + say(news.text);
  for (const Reply::Token& token : news.tokens_scored) {  // one by one, so that each is known with its text
    if (!token.logprobs.empty()) unplaced_.push_back(token.logprobs);
    out += say(token.text);
  }
  return out;
}

std::string BlockStream::say(const Reply::Parts& text) {
  std::string out;
  if (!text.reasoning.empty()) {
    out += change(Block::reasoning);
    out += add(Block::reasoning, text.reasoning);
  }
  if (text.content.empty()) return out;
  if (!asked_.tools.is_null()) return out + put(calls_.push(text.content));
  out += change(Block::text);
  return out + add(Block::text, text.content);
}

std::string BlockStream::end(size_t, const Outcome& outcome) {
  std::string out = put(calls_.finish(is_cut(outcome)));
  if (const std::string content = standing_in(asked_, said_); !content.empty()) {
    unplaced_.clear();
    out += change(Block::text);
    out += add(Block::text, content);
  }
  // A stop text is an end of the text before it.
  return out += change(Block::none, "", outcome.generated.finish != engine::Finish::length);
}

std::string named_event(const nlohmann::ordered_json& json) {
  return "event: " + json["type"].get<std::string>() + "\n" + sse(json);
}

}  // namespace braid::serve
