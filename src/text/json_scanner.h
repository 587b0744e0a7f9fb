// One JSON object or array, checked byte by byte while it arrives, and written again without the white space around its
// values. What a model writes is as hostile as a file: depth is limited.
#pragma once
#include <string>
#include <string_view>

namespace braid::text {

class JsonScanner {
 public:
  // The next byte; what it adds to the compact form is appended to `out`. Line breaks and other control characters in
  // strings, which models write although JSON does not allow them, come out escaped. False: this is not JSON, or
  // nested too deeply, or follows the end.
  bool push(char ch, std::string& out);
  bool done() const { return expects_ == Expects::nothing; }
  bool in_string() const { return string_; }
  size_t depth() const { return open_.size(); }

 private:
  enum class Expects { root, value, value_or_end, key, key_or_end, colon, comma_or_end, nothing };
  bool push_in_string(char ch, std::string& out);
  bool push_token(char ch);
  bool open(char ch);
  bool close(char ch);
  bool end_scalar();

  Expects expects_ = Expects::root;
  std::string open_;    // { and [, outermost first
  std::string scalar_;  // a number or a word that is arriving
  bool string_ = false, key_ = false, escape_ = false;
  int hex_left_ = 0;  // digits of \uXXXX
};

// The inside of a JSON string for `text`, without the quotes.
void append_json_escaped(std::string_view text, std::string& out);

}  // namespace braid::text
