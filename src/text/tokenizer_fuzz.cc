// Any bytes as a tokenizer.json, then a zero byte and a text: it is read or refused in one line, and what it encodes
// and decodes is valid UTF-8, all at once or token by token.
#include <cstdint>
#include <string>
#include <string_view>

#include "sys/check.h"
#include "sys/error.h"
#include "sys/utf8.h"
#include "text/tokenizer.h"

namespace {

using braid::text::StreamDecoder;
using braid::text::Tokenizer;

void use(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, true);
  for (const int32_t id : ids) CHECK(id >= 0, "id {}", id);
  const std::string decoded = tokenizer.decode(ids, false);
  CHECK(braid::sys::utf8_valid_prefix(decoded) == decoded.size(), "{}", decoded);
  StreamDecoder stream(tokenizer, true);
  for (const int32_t id : ids) {
    const std::string piece = stream.push(id);
    CHECK(braid::sys::utf8_valid_prefix(piece) == piece.size(), "{}", piece);
  }
  stream.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\0');
  const std::string_view text = end == bytes.npos ? " Hello, wörld 12\n" : bytes.substr(end + 1, 256);
  try {
    use(Tokenizer::parse(bytes.substr(0, end), "fuzz"), text);
  } catch (const braid::Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
  return 0;
}
