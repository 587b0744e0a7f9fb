// The "normalizer" of tokenizer.json: what is done to text before it is split. A list of steps, Sequences flattened.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/json.h"
#include "text/regex.h"

namespace braid::text {

class Normalizer {
 public:
  // Types: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, Sequence. Error on any other.
  static Normalizer read(const std::optional<io::Json>& spec);
  bool empty() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;  // valid UTF-8 in and out

 private:
  struct Form {
    int options;       // of utf8proc
    bool keeps_latin;  // nothing below U+0300 changes
  };
  struct Lowercase {};
  struct StripAccents {};
  struct Strip {
    bool left, right;
  };
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Regex pattern;
    std::string content;
  };
  using Step = std::variant<Form, Lowercase, StripAccents, Strip, Prepend, Replace>;
  void add(const io::Json& spec);
  static std::string apply_form(const Form& form, std::string_view text);
  std::vector<Step> steps_;
};

// Appends `text` to `out` with every match of `pattern` replaced.
void replace_all(const Regex& pattern, std::string_view text, std::string_view content, std::string& out);

}  // namespace braid::text
