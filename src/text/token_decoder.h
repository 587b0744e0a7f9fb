// The "decoder" of tokenizer.json: token strings back to text. A list of steps, Sequences flattened, run as a stream:
// what is decoded at once and what is decoded token by token differ only in when bytes are let go.
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

  // One text in the making. `eager` lets characters spelled as <0xNN> bytes go as soon as they are whole; otherwise a
  // run of bytes waits for its end, because Hugging Face's library turns all of a run that is not UTF-8 into U+FFFD.
  class Stream {
   public:
    Stream(const TokenDecoder& decoder, bool eager);
    void push(std::string_view token, std::string& out);  // appends whole characters only
    void finish(std::string& out);

   private:
    struct State {
      std::string held;      // bytes that are no character yet; in Strip, trailing characters that may go
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
