#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <new>

#include "sys/error.h"
#include "sys/utf8.h"

namespace braid::text {
namespace {

constexpr size_t kPatternBytesMax = 32768;     // the longest released split pattern has under 1,000
constexpr uint32_t kMatchLimit = 2'000'000;    // backtracks in one match: a run of a million blanks still passes
constexpr uint32_t kDepthLimit = 20'000;       // interpreter only
constexpr uint32_t kHeapLimitKib = 64 * 1024;  // interpreter only
constexpr size_t kStackMax = size_t{8} << 20;  // JIT stack for the rare match that outgrows its 32 KiB

// PCRE2's \s also matches U+180E, and its \w lacks marks, connectors and letters among the symbols.
constexpr std::string_view kSpace = R"(\t-\r \x{85}\p{Z})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kHex = "0-9a-fA-F";

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

[[noreturn]] void refuse(std::string_view pattern, size_t at, const std::string& where) {
  fail(where,
       {.what = "unsupported regular expression",
        .got = fmt::format("'{}' at character {} of '{}'", printable(pattern.substr(at, 2)), at, printable(pattern)),
        .expected = "no class intersections, nested classes or negated shorthands in a class"});
}

// Rewrites one backslash sequence; `at` is on the backslash and ends on the last character consumed.
void rewrite_escape(std::string_view pattern, size_t& at, bool in_class, const std::string& where, std::string& out) {
  const size_t start = at++;
  if (at == pattern.size()) {  // PCRE2 reports the lone backslash
    out += '\\';
    return;
  }
  const char ch = pattern[at];
  const std::string_view members = ch == 's' || ch == 'S'   ? kSpace
                                   : ch == 'w' || ch == 'W' ? kWord
                                   : ch == 'h' || ch == 'H' ? kHex
                                                            : "";
  const bool negated = ch == 'S' || ch == 'W' || ch == 'H';
  if (ch == 'u' && at + 4 < pattern.size()) {
    out += fmt::format("\\x{{{}}}", pattern.substr(at + 1, 4));
    at += 4;
  } else if (members.empty() || (in_class && ch == 'S')) {  // [\s\S] keeps PCRE2's \S: it differs only in U+180E
    out += pattern.substr(start, 2);
  } else if (!in_class) {
    out += fmt::format("[{}{}]", negated ? "^" : "", members);
  } else if (negated) {
    refuse(pattern, start, where);
  } else {
    out += members;
  }
}

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  std::string out;
  bool in_class = false;
  size_t class_start = 0;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char ch = pattern[at];
    if (ch == '\\') {
      rewrite_escape(pattern, at, in_class, where, out);
      continue;
    }
    if (in_class) {
      if (ch == ']' && at != class_start) in_class = false;
      if (ch == '&' && pattern.substr(at, 2) == "&&") refuse(pattern, at, where);
      if (ch == '[') {
        const size_t posix_end = pattern.find(":]", at);
        if (pattern.substr(at, 2) != "[:" || posix_end == std::string_view::npos) refuse(pattern, at, where);
        out += pattern.substr(at, posix_end + 2 - at);
        at = posix_end + 1;
        continue;
      }
    } else if (ch == '[') {
      in_class = true;
      class_start = at + 1;
      if (class_start < pattern.size() && pattern[class_start] == '^') {
        ++class_start;
        out += '[';
        ++at;
        out += '^';
        continue;
      }
    }
    out += ch;
  }
  return out;
}

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }
void Regex::Free::operator()(pcre2_real_match_context_8* context) const { pcre2_match_context_free(context); }
void Matcher::Free::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free(data); }
void Matcher::Free::operator()(pcre2_real_jit_stack_8* stack) const { pcre2_jit_stack_free(stack); }
void Matcher::Free::operator()(pcre2_real_match_context_8* context) const { pcre2_match_context_free(context); }

Regex::Regex(std::string_view pattern, const std::string& where) : where_(where) {
  if (pattern.size() > kPatternBytesMax) {
    fail(where, {.what = "regular expression too long",
                 .got = fmt::format("{} bytes", pattern.size()),
                 .expected = fmt::format("at most {}", kPatternBytesMax)});
  }
  const std::string source = to_pcre2(pattern, where);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // ^ and $ are line anchors in Oniguruma; \C could split a character.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  code_.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), kOptions, &code, &offset, nullptr));
  if (!code_) {
    fail(where, {.what = "bad regular expression: " + message_of(code),
                 .got = fmt::format("'{}' (byte {} as PCRE2 reads it)", printable(pattern), offset)});
  }
  jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
  context_.reset(pcre2_match_context_create(nullptr));
  if (!context_) throw std::bad_alloc();
  pcre2_set_match_limit(context_.get(), kMatchLimit);
  pcre2_set_depth_limit(context_.get(), kDepthLimit);
  pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
}

Regex Regex::literal(std::string_view text, const std::string& where) {
  std::string pattern;
  for (const char ch : text) {
    const auto byte = static_cast<unsigned char>(ch);
    const bool plain = byte >= 0x80 || (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
    if (plain) {
      pattern += ch;
    } else {
      pattern += fmt::format("\\x{{{:x}}}", byte);
    }
  }
  return Regex(pattern, where);
}

Regex Regex::read(const io::Json& pattern) {
  if (const auto regex = pattern.string_of({"Regex"})) return Regex(*regex, pattern.document());
  if (const auto text = pattern.string_of({"String"})) return literal(*text, pattern.document());
  pattern.refuse("is not a pattern", R"({"Regex": ...} or {"String": ...})");
}

Matcher::Matcher(const Regex& regex)
    : regex_(&regex), data_(pcre2_match_data_create_from_pattern(regex.code_.get(), nullptr)) {
  if (!data_) throw std::bad_alloc();
}

int Matcher::run(std::string_view text, size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_context* context = deep_context_ ? deep_context_.get() : regex_->context_.get();
  if (regex_->jit_) {
    return pcre2_jit_match(regex_->code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data_.get(), context);
  }
  return pcre2_match(regex_->code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data_.get(), context);
}

bool Matcher::find(std::string_view text, size_t from, Match& match) {
  int status = run(text, from);
  if (status == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
    stack_.reset(pcre2_jit_stack_create(32 * 1024, kStackMax, nullptr));
    deep_context_.reset(pcre2_match_context_copy(regex_->context_.get()));
    if (!stack_ || !deep_context_) throw std::bad_alloc();
    pcre2_jit_stack_assign(deep_context_.get(), nullptr, stack_.get());
    status = run(text, from);
  }
  if (status == PCRE2_ERROR_NOMATCH) return false;
  if (status < 0) {
    fail(regex_->where_, {.what = "a regular expression failed on this text: " + message_of(status),
                          .got = fmt::format("{} bytes of text", text.size()),
                          .hint = "shorter lines"});
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_.get());
  match = {.begin = range[0], .end = range[1]};
  if (match.begin < from || match.end < match.begin || match.end > text.size()) {
    fail(regex_->where_, {.what = "a regular expression moved its match backwards", .hint = "a pattern without \\K"});
  }
  return true;
}

bool Matches::next(Match& match) {
  while (from_ <= text_.size() && matcher_->find(text_, from_, match)) {
    if (match.end > match.begin || match.end != last_) {
      from_ = last_ = match.end;
      return true;
    }
    from_ += from_ < text_.size() ? sys::utf8_step(text_, from_).length : 1;
  }
  return false;
}

}  // namespace braid::text
