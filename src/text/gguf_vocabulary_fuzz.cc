// Any bytes as a GGUF file: tokenizer and template are read or refused in one line, and what is encoded and decoded is
// valid UTF-8.
#include <cstdint>
#include <span>
#include <string_view>

#include "sys/check.h"
#include "sys/error.h"
#include "sys/utf8.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  try {
    const io::Gguf file(std::as_bytes(std::span(data, size)), "fuzz");
    text::tokenizer_config(file);
    const text::Tokenizer tokenizer = text::Tokenizer::parse(text::tokenizer_json(file), "fuzz");
    const auto ids = tokenizer.encode(" Hello, wörd 12\n<s>", true);
    const std::string decoded = tokenizer.decode(ids, false);
    CHECK(sys::utf8_valid_prefix(decoded) == decoded.size(), "{}", decoded);
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
  return 0;
}
