// The "decoder" of tokenizer.json: token strings back to text. A list of steps, Sequences flattened, run as a stream:
// decoding at once and token by token differ only in when bytes are emitted.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/json.h"
#include "text/pretokenizer.h"
#include "text/regex.h"

namespace braid::text {

class TokenDecoder {
 public:
  // Types: ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence. Error on any other. Null: tokens are
  // joined by spaces.
  static TokenDecoder read(const std::optional<io::Json>& spec);

  // What a token adds to the middle of a text, as bytes: one token may be a part of a character.
  std::string bytes_of(std::string_view token) const;

  // A text being decoded. `eager` emits characters spelled as <0xNN> bytes as soon as they are complete; otherwise a
  // run of bytes waits for its end, because Hugging Face's library turns every byte of a run that is not UTF-8 into
  // U+FFFD.
  class Stream {
   public:
    Stream(const TokenDecoder& decoder, bool eager);
    void push(std::string_view token, std::string& out);  // appends complete characters only
    void finish(std::string& out);

   private:
    friend class TokenDecoder;
    struct State {
      std::string held;      // bytes of an incomplete character; in Strip, trailing characters that may be stripped
      int64_t stripped = 0;  // characters taken off the front
      bool started = false;
    };
    void run(size_t step, std::string_view token, std::string& out);
    void run_byte_level(size_t step, std::string_view token, std::string& out);
    void run_byte_fallback(size_t step, std::string_view token, std::string& out);
    void run_strip(size_t step, std::string_view token, std::string& out);
    void end_byte_run(size_t step, std::string& out);
    const TokenDecoder* decoder_;
    std::vector<State> states_;
    bool eager_;
    bool any_ = false;
  };

 private:
  struct ByteLevel {};
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct ByteFallback {};
  struct Strip {
    std::string content;
    int64_t start, stop;
    bool fused;  // after Fuse or ByteLevel: the whole text is one string
  };
  struct Metaspace {
    std::string replacement;
    bool drop_first;
  };
  using Step = std::variant<ByteLevel, Replace, ByteFallback, Strip, Metaspace>;
  void add(const io::Json& spec);
  std::vector<Step> steps_;
  bool fused_ = false;
  bool join_with_spaces_ = false;
};

}  // namespace braid::text
