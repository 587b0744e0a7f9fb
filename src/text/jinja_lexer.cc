#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "sys/utf8.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

constexpr size_t kSourceMax = size_t{4} << 20;  // bytes; the longest released template has 20,000

// Longest first, so that the first match is the right one.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();  // as keep_trailing_newline=False
  return out;
}

bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : src_(normalized(source)) {}
  std::vector<Token> run();

 private:
  enum class Opening { none, print, tag, comment, raw };

  std::string_view rest() const { return std::string_view(src_).substr(pos_); }
  bool at(std::string_view what) const { return rest().starts_with(what); }
  void advance(size_t to) {
    for (; pos_ < to; ++pos_) line_ += src_[pos_] == '\n';
  }
  void skip_spaces() {
    size_t to = pos_;
    for (size_t next = to; to < src_.size() && is_space(next_point(src_, next)); to = next) {
    }
    advance(to);
  }
  void push(Token::Type type, std::string text = {}, Value value = {}) {
    tokens_.push_back({type, std::move(text), std::move(value), line_});
  }
  [[noreturn]] void fail(std::string text) const { throw SyntaxError{std::move(text), line_}; }

  size_t find_opening(Opening& kind) const;
  size_t raw_end(size_t from) const;  // past the `raw %}` of a raw tag whose sign is before `from`; npos: no raw tag
  void data(size_t to, char sign, bool strips_indent);
  void close(char sign);
  void comment();
  void raw();
  void inside(bool print);
  bool closing(bool print);
  void token();
  void number();
  void string();
  void op();

  std::string src_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // nothing precedes pos_ on its line
  std::string open_brackets_;
  std::vector<Token> tokens_;
};

char sign_at(std::string_view s, size_t pos) {
  return pos < s.size() && (s[pos] == '-' || s[pos] == '+') ? s[pos] : '\0';
}

size_t Lexer::raw_end(size_t from) const {
  const auto spaces = [this](size_t at) {
    for (size_t next = at; at < src_.size() && is_space(next_point(src_, next)); at = next) {
    }
    return at;
  };
  size_t at = spaces(from);
  if (src_.compare(at, 3, "raw") != 0) return std::string::npos;
  at = spaces(at + 3);
  if (src_.compare(at, 3, "-%}") == 0) return at + 3;
  return src_.compare(at, 2, "%}") == 0 ? at + 2 : std::string::npos;
}

size_t Lexer::find_opening(Opening& kind) const {
  for (size_t at = src_.find('{', pos_); at != std::string::npos; at = src_.find('{', at + 1)) {
    const char second = at + 1 < src_.size() ? src_[at + 1] : '\0';
    if (second == '{') return kind = Opening::print, at;
    if (second == '#') return kind = Opening::comment, at;
    if (second != '%') continue;
    kind = raw_end(at + 2 + (sign_at(src_, at + 2) != '\0')) != std::string::npos ? Opening::raw : Opening::tag;
    return at;
  }
  kind = Opening::none;
  return src_.size();
}

// Text up to `to`, where a tag with `sign` follows.
void Lexer::data(size_t to, char sign, bool strips_indent) {
  std::string text = src_.substr(pos_, to - pos_);
  if (sign == '-') {
    size_t end = text.size();
    for (size_t before = end; end > 0 && is_space(last_point(text, before)); end = before) {
    }
    text.resize(end);
  } else if (sign != '+' && strips_indent) {
    const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line > 0 || line_start_) {
      size_t at = line;
      for (size_t next = at; at < text.size() && is_space(next_point(text, next)); at = next) {
      }
      if (at == text.size()) text.resize(line);
    }
  }
  if (!text.empty()) push(Token::Type::data, std::move(text));
  advance(to);
}

// After a closed block tag, comment or raw section.
void Lexer::close(char sign) {
  if (sign == '-') {
    skip_spaces();
  } else if (sign != '+' && at("\n")) {
    advance(pos_ + 1);
  }
  line_start_ = pos_ > 0 && src_[pos_ - 1] == '\n';
}

void Lexer::comment() {
  if (pos_ >= src_.size()) return;  // the reference implementation looks for an end only where something follows
  const size_t end = src_.find("#}", pos_);
  if (end == std::string::npos) fail("Missing end of comment tag");
  const char sign = end > pos_ ? sign_at(src_, end - 1) : '\0';
  advance(end + 2);
  close(sign);
}

void Lexer::raw() {
  const size_t begin = raw_end(pos_);
  const bool strips = src_[begin - 3] == '-';
  advance(begin);
  if (strips) skip_spaces();
  if (pos_ >= src_.size()) return;  // as in a comment
  line_start_ = src_[pos_ - 1] == '\n';
  for (size_t at = src_.find("{%", pos_); at != std::string::npos; at = src_.find("{%", at + 1)) {
    const char sign = sign_at(src_, at + 2);
    size_t end = at + 2 + (sign != '\0');
    const auto spaces = [&] {
      for (size_t next = end; end < src_.size() && is_space(next_point(src_, next)); end = next) {
      }
    };
    spaces();
    if (src_.compare(end, 6, "endraw") != 0) continue;
    end += 6;
    spaces();
    const char last = sign_at(src_, end);
    end += last != '\0';
    if (src_.compare(end, 2, "%}") != 0) continue;
    data(at, sign, true);
    advance(end + 2);
    return close(last);
  }
  fail("Missing end of raw directive");
}

bool Lexer::closing(bool print) {
  if (!open_brackets_.empty()) return false;
  const std::string_view end = print ? "}}" : "%}";
  const char sign = sign_at(src_, pos_);
  if (print && sign == '+') return false;
  if (!rest().substr(sign != '\0').starts_with(end)) return false;
  push(print ? Token::Type::print_close : Token::Type::tag_close);
  advance(pos_ + (sign != '\0') + 2);
  close(print && sign == '\0' ? '+' : sign);  // the newline after a print stays
  return true;
}

void Lexer::inside(bool print) {
  push(print ? Token::Type::print_open : Token::Type::tag_open);
  pos_ += 2;
  pos_ += sign_at(src_, pos_) != '\0';
  for (;;) {
    if (closing(print)) return;
    skip_spaces();
    if (closing(print)) return;
    if (pos_ >= src_.size()) return;  // the parser reports what is missing
    token();
  }
}

void Lexer::token() {
  const char c = src_[pos_];
  if (is_digit(c)) return number();
  if (c == '"' || c == '\'') return string();
  if (!starts_name(c)) return op();
  size_t end = pos_;
  while (end < src_.size() && (starts_name(src_[end]) || is_digit(src_[end]))) ++end;
  push(Token::Type::name, src_.substr(pos_, end - pos_));
  pos_ = end;
}

void Lexer::op() {
  for (const std::string_view name : kOperators) {
    if (!at(name)) continue;
    const char c = name[0];
    if (c == '(' || c == '[' || c == '{') {
      open_brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets_.empty()) fail(fmt::format("unexpected '{}'", c));
      if (open_brackets_.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open_brackets_.back()));
      open_brackets_.pop_back();
    }
    push(Token::Type::op, std::string(name));
    pos_ += name.size();
    return;
  }
  size_t next = pos_;
  next_point(src_, next);
  fail(fmt::format("unexpected char '{}'", src_.substr(pos_, next - pos_)));
}

// 12, 1_000, 0x1f, 0b1, 0o7, 1.5, 2e-3. After a dot only digits count: `x.0.1` is two subscripts.
void Lexer::number() {
  const bool subscript = pos_ > 0 && src_[pos_ - 1] == '.';
  int base = 10;
  size_t end = pos_;
  if (src_[pos_] == '0' && pos_ + 1 < src_.size()) {
    const char kind = static_cast<char>(std::tolower(static_cast<unsigned char>(src_[pos_ + 1])));
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) end += 2;
  }
  const size_t first = end;
  const auto digits = [&] {
    const auto fits = [&](char c) {
      return base == 16 ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : is_digit(c) && c - '0' < base;
    };
    const auto peek = [&](size_t i) { return i < src_.size() ? src_[i] : '\0'; };
    while (fits(peek(end)) || (peek(end) == '_' && fits(peek(end + 1)))) ++end;
  };
  digits();
  bool real = false;
  if (base == 10 && !subscript) {
    if (end + 1 < src_.size() && src_[end] == '.' && is_digit(src_[end + 1])) {
      ++end;
      digits();
      real = true;
    }
    if (end < src_.size() && (src_[end] == 'e' || src_[end] == 'E')) {
      const size_t exponent = end + 1 + (sign_at(src_, end + 1) != '\0');
      if (exponent < src_.size() && is_digit(src_[exponent])) {
        end = exponent;
        digits();
        real = true;
      }
    }
  }
  std::string text = src_.substr(first, end - first);
  std::erase(text, '_');
  if (real) {
    double d = 0;
    const auto got = std::from_chars(text.data(), text.data() + text.size(), d);
    if (got.ec == std::errc::result_out_of_range) d = text.find("e-") != std::string::npos ? 0 : HUGE_VAL;
    push(Token::Type::constant, "number", d);
  } else {
    int64_t i = 0;
    const auto got = std::from_chars(text.data(), text.data() + text.size(), i, base);
    const bool large = got.ec == std::errc::result_out_of_range;
    if (large && base != 10) fail("an integer beyond 64 bits that is not decimal");
    if ((got.ec != std::errc() && !large) || (base == 10 && text.size() > 1 && text[0] == '0' && (large || i != 0)))
      fail("not a number");
    push(Token::Type::constant, "number", large ? Value::whole(text) : Value(i));
  }
  pos_ = end;
}

// Python's escapes. Unknown ones are kept as written.
void Lexer::string() {
  const char quote = src_[pos_];
  std::string out;
  size_t at = pos_ + 1;
  const auto code = [&](size_t most, int base, size_t least) {
    uint32_t point = 0;
    const char* from = src_.data() + at;
    const auto got = std::from_chars(from, from + std::min(most, src_.size() - at), point, base);
    const auto n = static_cast<size_t>(got.ptr - from);
    if (got.ec != std::errc() || n < least) fail("truncated escape in a string");
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
      fail("an escape in a string is not a Unicode character");
    at += n;
    sys::append_utf8(static_cast<char32_t>(point), out);
  };
  while (at < src_.size() && src_[at] != quote) {
    if (src_[at] != '\\' || at + 1 >= src_.size()) {
      out += src_[at++];
      continue;
    }
    const char c = src_[at + 1];
    at += 2;
    constexpr std::string_view kNames = "ntrabfv\\'\"", kMeans = "\n\t\r\a\b\f\v\\'\"";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      out += kMeans[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      code(n, 16, n);
    } else if (c >= '0' && c <= '7') {
      --at;
      code(3, 8, 1);
    } else if (c == 'N') {
      fail("named characters (\\N) are not supported");
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
  }
  if (at >= src_.size()) fail(fmt::format("a string is not closed, {} is missing", quote));
  push(Token::Type::constant, "string", std::move(out));
  advance(at + 1);
}

std::vector<Token> Lexer::run() {
  for (;;) {
    Opening kind = Opening::none;
    const size_t open = find_opening(kind);
    const char sign = kind == Opening::none ? '+' : sign_at(src_, open + 2);
    data(open, sign, kind != Opening::print);
    if (kind == Opening::none) break;
    if (kind == Opening::comment || kind == Opening::raw) {
      pos_ += 2 + (sign != '\0');
      kind == Opening::comment ? comment() : raw();
    } else {
      inside(kind == Opening::print);
    }
  }
  push(Token::Type::end);
  return std::move(tokens_);
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kSourceMax) throw SyntaxError{fmt::format("the template is longer than {} bytes", kSourceMax), 1};
  if (sys::utf8_valid_prefix(source) != source.size()) throw SyntaxError{"the template is not UTF-8", 1};
  return Lexer(source).run();
}

}  // namespace braid::text::jinja
