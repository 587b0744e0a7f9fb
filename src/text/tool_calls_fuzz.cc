// Any text as an answer with tool calls: what a model writes is as hostile as what a client sends. The pieces of a
// stream add up to the same whatever the division of the text, and arguments that are complete are a JSON object.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "sys/utf8.h"
#include "text/tool_calls.h"

namespace {

using braid::text::AnswerPiece;

std::string joined(const std::vector<AnswerPiece>& pieces) {
  std::string out;
  const AnswerPiece* last = nullptr;
  for (const AnswerPiece& piece : pieces) {
    const bool more = last && last->kind == piece.kind && piece.kind != AnswerPiece::Kind::call;
    if (!more || piece.kind == AnswerPiece::Kind::end) out += static_cast<char>('0' + static_cast<int>(piece.kind));
    out += piece.text + (piece.complete ? "" : "!");
    last = &piece;
  }
  return out;
}

std::string streamed(std::string_view text, const nlohmann::ordered_json& tools, size_t size, bool cut, bool bare) {
  braid::text::ToolCallStream stream(tools, bare);
  std::vector<AnswerPiece> pieces;
  const auto add = [&pieces](std::vector<AnswerPiece> more) { pieces.insert(pieces.end(), more.begin(), more.end()); };
  for (size_t at = 0; at < text.size(); at += size) add(stream.push(text.substr(at, size)));
  add(stream.finish(cut));
  return joined(pieces);
}

bool is_utf8(std::string_view text) {
  std::string lossy;
  braid::sys::append_lossy(text, false, lossy);
  return lossy == text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tools = nlohmann::ordered_json::parse(
      R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}},
          {"name": "g", "parameters": 5}, 7])");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool cut = size % 2 == 1, bare = size / 2 % 2 == 1;
  const std::string whole = streamed(text, tools, size + 1, cut, bare);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{7}, size_t{20}}) {
    if (streamed(text, tools, piece, cut, bare) != whole) std::abort();
  }
  if (!is_utf8(text)) return 0;  // JSON has to be
  for (const braid::text::ToolCall& call : braid::text::parse_tool_calls(text, tools, cut, bare).calls) {
    if (!call.complete) continue;
    if (!nlohmann::ordered_json::parse(call.arguments, nullptr, false).is_object()) std::abort();
  }
  return 0;
}
