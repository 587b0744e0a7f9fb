// Whether a place in a JSON text is inside one of its strings.
#pragma once

namespace braid::text {

struct Quotes {
  bool inside = false, escaped = false;

  void push(char ch) {
    if (!inside || escaped || (ch != '"' && ch != '\\')) {
      if (!inside) inside = ch == '"';
      escaped = false;
    } else {
      inside = ch == '\\';
      escaped = inside;
    }
  }
};

}  // namespace braid::text
