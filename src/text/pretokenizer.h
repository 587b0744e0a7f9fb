// The "pre_tokenizer" of tokenizer.json: text is cut into pieces which the merges never cross. A chain of steps; each
// hands its pieces to the next, the last to the caller, so nothing is stored in between.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/json.h"
#include "sys/function_ref.h"
#include "text/regex.h"

namespace braid::text {

enum class PrependScheme : uint8_t { first, always, never };

// "prepend_scheme" of a Metaspace, or the older "add_prefix_space".
PrependScheme read_prepend_scheme(const io::Json& spec);

class PreTokenizer {
 public:
  // Types: Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, Sequence.
  // Error on any other, and on steps after ByteLevel (they would see its byte alphabet).
  static PreTokenizer read(const std::optional<io::Json>& spec);
  bool byte_level() const { return byte_level_; }

  // One thread's matchers, one per step.
  class Scratch {
   public:
    explicit Scratch(const PreTokenizer& pre_tokenizer);

   private:
    friend class PreTokenizer;
    std::vector<Matcher> matchers_;
  };
  using Piece = sys::FunctionRef<void(std::string_view)>;
  // `text` is valid UTF-8; `first`: it is the start of the whole text. Pieces are never empty.
  void split(std::string_view text, bool first, Scratch& scratch, Piece piece) const;

 private:
  enum class Behavior : uint8_t { isolated, removed, contiguous, merged_with_previous, merged_with_next };
  struct Split {
    Regex pattern;
    Behavior behavior;
    bool invert;
    size_t matcher;
  };
  struct PrefixSpace {};
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
  };
  using Step = std::variant<Split, PrefixSpace, Metaspace>;

  void add(const io::Json& spec);
  void add_split(Regex pattern, Behavior behavior, bool invert);
  static Behavior read_behavior(const io::Json& spec);
  void run(std::string_view text, bool first, size_t step, Scratch& scratch, Piece piece) const;
  void run_split(const Split& split, std::string_view text, bool first, size_t step, Scratch& scratch,
                 Piece piece) const;

  std::vector<Step> steps_;
  size_t matcher_count_ = 0;
  bool byte_level_ = false;
};

}  // namespace braid::text
