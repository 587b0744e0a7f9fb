#include "text/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "sys/error.h"
#include "sys/utf8.h"
#include "text/character.h"

namespace braid::text {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

constexpr size_t kOutputBytesMax = size_t{1} << 30;

void append_normalized(std::string_view text, int options, std::string& out) {
  utf8proc_uint8_t* bytes = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &bytes, static_cast<utf8proc_option_t>(options));
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) fail("normalizer", {.what = utf8proc_errmsg(size)});
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, &std::free);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const sys::Utf8Step step = sys::utf8_step(text, at);
    at += step.length;
    if (step.value == 0x130) {
      out += "i\u0307";  // the one character whose lower case is two characters
    } else {
      sys::append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.value))), out);
    }
  }
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const sys::Utf8Step step = sys::utf8_step(text, at);
    if (!is_mark(step.value)) out += text.substr(at, step.length);
    at += step.length;
  }
  return out;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    const sys::Utf8Step step = sys::utf8_step(text, begin);
    if (!is_space(step.value)) break;
    begin += step.length;
  }
  size_t end = begin;  // after the last non-space character
  for (size_t at = begin; at < text.size();) {
    const sys::Utf8Step step = sys::utf8_step(text, at);
    at += step.length;
    if (!right || !is_space(step.value)) end = at;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

void replace_all(const Regex& pattern, std::string_view text, std::string_view content, std::string& out) {
  Matcher matcher(pattern);
  Matches matches(matcher, text);
  size_t written = 0;
  for (Match match; matches.next(match); written = match.end) {
    if (out.size() + content.size() > kOutputBytesMax)
      fail("normalizer", {.what = "Replace makes the text too long", .expected = "under 1 GiB"});
    out += text.substr(written, match.begin - written);
    out += content;
  }
  out += text.substr(written);
}

Normalizer Normalizer::read(const std::optional<io::Json>& spec) {
  Normalizer normalizer;
  if (spec) normalizer.add(*spec);
  return normalizer;
}

void Normalizer::add(const io::Json& spec) {  // Sequences nest no deeper than io::JsonLimits allows
  const std::string type = spec.need({"type"}).as_string();
  if (type == "Sequence") {
    for (const io::Json& step : spec.need({"normalizers"}).items()) add(step);
  } else if (type == "NFC") {
    steps_.push_back(Form{UTF8PROC_STABLE | UTF8PROC_COMPOSE, true});
  } else if (type == "NFD") {
    steps_.push_back(Form{UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, false});
  } else if (type == "NFKC") {
    steps_.push_back(Form{UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, false});
  } else if (type == "NFKD") {
    steps_.push_back(Form{UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, false});
  } else if (type == "Lowercase") {
    steps_.push_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps_.push_back(StripAccents{});
  } else if (type == "Strip") {
    steps_.push_back(Strip{spec.bool_of({"strip_left"}).value_or(true), spec.bool_of({"strip_right"}).value_or(true)});
  } else if (type == "Prepend") {
    steps_.push_back(Prepend{spec.need({"prepend"}).as_string()});
  } else if (type == "Replace") {
    steps_.push_back(Replace{Regex::read(spec.need({"pattern"})), spec.need({"content"}).as_string()});
  } else {
    spec.need({"type"}).refuse("is not supported",
                               "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace or Sequence");
  }
}

// ASCII never changes, and never combines with what precedes it: only runs of other characters, with the ASCII
// character before each, go through utf8proc. Below U+0300 composition changes nothing.
std::string Normalizer::apply_form(const Form& form, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t written = 0;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t begin = at > 0 ? at - 1 : 0;
    bool changes = false;
    while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) {
      const sys::Utf8Step step = sys::utf8_step(text, at);
      changes |= step.value >= 0x300 || !form.keeps_latin;
      at += step.length;
    }
    if (!changes) continue;
    out += text.substr(written, begin - written);
    append_normalized(text.substr(begin, at - begin), form.options, out);
    written = at;
  }
  out += text.substr(written);
  return out;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string value(text);
  for (const Step& step : steps_) {
    value = std::visit(Overloaded{[&](const Form& form) { return apply_form(form, value); },
                                  [&](const Lowercase&) { return lowercase(value); },
                                  [&](const StripAccents&) { return without_marks(value); },
                                  [&](const Strip& s) { return std::string(stripped(value, s.left, s.right)); },
                                  [&](const Prepend& p) { return value.empty() ? value : p.text + value; },
                                  [&](const Replace& r) {
                                    std::string out;
                                    replace_all(r.pattern, value, r.content, out);
                                    return out;
                                  }},
                       step);
  }
  return value;
}

}  // namespace braid::text
