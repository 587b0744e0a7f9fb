// A cursor over JSON text. A large tokenizer.json is nearly all vocabulary and merges: half a million short strings,
// for which a document tree takes a second and this takes hundredths of one. It allocates only for strings with
// escapes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace braid::text {

class JsonCursor {
 public:
  // `text` must outlive the cursor. Errors begin with `where` and name the byte.
  JsonCursor(std::string_view text, std::string where, size_t at = 0)
      : text_(text), where_(std::move(where)), at_(at) {}

  char peek();            // the next character after white space, '\0' at the end
  bool consume(char ch);  // skips it if it is next
  void expect(char ch);
  // One round of an object or array: true while an element follows. `first` starts true.
  bool more(bool& first, char close);
  std::string_view string(std::string& scratch);  // the content; a view of the text, or of `scratch` if it had escapes
  int64_t integer();
  void skip_value();  // checks only that brackets match in number, at most 64 deep
  size_t at() const { return at_; }
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  void append_escape(std::string& scratch);
  unsigned hex4();
  std::string_view text_;
  std::string where_;
  size_t at_;
};

}  // namespace braid::text
