#include "text/json_scanner.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace braid::text {
namespace {

constexpr size_t kScanDepthMax = 64, kScalarMax = 400;

bool is_blank_byte(char ch) { return ch == ' ' || ch == '\t' || ch == '\r' || ch == '\n'; }
bool is_hex_digit(char ch) { return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'f') || (ch >= 'A' && ch <= 'F'); }
bool is_scalar_byte(char ch) {
  return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || ch == '-' || ch == '+' || ch == '.' || ch == 'E';
}

}  // namespace

void append_json_escaped(std::string_view text, std::string& out) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  for (const char ch : text) {
    if (const size_t named = kNamed.find(ch); named != kNamed.npos)
      (out += '\\') += kNames[named];
    else if (static_cast<unsigned char>(ch) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(ch));
    else
      out += ch;
  }
}

bool JsonScanner::push_in_string(char ch, std::string& out) {
  if (!escape_ && hex_left_ == 0 && static_cast<unsigned char>(ch) < 0x20) {
    append_json_escaped({&ch, 1}, out);
    return true;
  }
  out += ch;
  if (hex_left_ > 0) return --hex_left_, is_hex_digit(ch);
  if (escape_) {
    escape_ = false;
    if (ch == 'u') hex_left_ = 4;
    return std::string_view("\"\\/bfnrtu").find(ch) != std::string_view::npos;
  }
  escape_ = ch == '\\';
  if (ch != '"') return true;
  string_ = false;
  expects_ = key_ ? Expects::colon : Expects::comma_or_end;
  return true;
}

bool JsonScanner::end_scalar() {
  if (scalar_.empty()) return true;
  const bool good = nlohmann::json::accept(scalar_);
  scalar_.clear();
  expects_ = Expects::comma_or_end;
  return good;
}

bool JsonScanner::open(char ch) {
  if (open_.size() == kScanDepthMax) return false;
  open_ += ch;
  expects_ = ch == '{' ? Expects::key_or_end : Expects::value_or_end;
  return true;
}

bool JsonScanner::close(char ch) {
  const bool matches = !open_.empty() && open_.back() == (ch == '}' ? '{' : '[');
  const bool empty = expects_ == (ch == '}' ? Expects::key_or_end : Expects::value_or_end);
  if (!matches || (!empty && expects_ != Expects::comma_or_end)) return false;
  open_.pop_back();
  expects_ = open_.empty() ? Expects::nothing : Expects::comma_or_end;
  return true;
}

// Of anything outside strings but white space and scalars.
bool JsonScanner::push_token(char ch) {
  const bool value = expects_ == Expects::value || expects_ == Expects::value_or_end;
  switch (ch) {
    case '{':
    case '[':
      return (value || expects_ == Expects::root) && open(ch);
    case '}':
    case ']':
      return close(ch);
    case '"':
      string_ = true;
      key_ = expects_ == Expects::key || expects_ == Expects::key_or_end;
      return value || key_;
    case ':':
      if (expects_ != Expects::colon) return false;
      expects_ = Expects::value;
      return true;
    case ',':
      if (expects_ != Expects::comma_or_end) return false;
      expects_ = open_.back() == '{' ? Expects::key : Expects::value;
      return true;
    default:
      return false;
  }
}

bool JsonScanner::push(char ch, std::string& out) {
  if (string_) return push_in_string(ch, out);
  const bool value = expects_ == Expects::value || expects_ == Expects::value_or_end;
  if (is_scalar_byte(ch) && (value || !scalar_.empty())) {
    if (scalar_.size() == kScalarMax) return false;
    scalar_ += ch;
    out += ch;
    return true;
  }
  if (!end_scalar()) return false;
  if (is_blank_byte(ch)) return !done();
  out += ch;
  return push_token(ch);
}

}  // namespace braid::text
