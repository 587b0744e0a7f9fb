#include "text/jinja_text.h"

#include <algorithm>
#include <cstring>

#include "sys/utf8.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

int64_t size_of(const std::string& s) { return static_cast<int64_t>(s.size()); }

// A million parts of a few bytes take a hundred times the memory of their text.
void push(std::vector<std::string>& parts, std::string part) {
  constexpr int64_t kPartBytes = 128;
  checked_size(static_cast<int64_t>(parts.size()), kPartBytes);
  parts.push_back(std::move(part));
}

std::string reversed(std::string_view s) { return {s.rbegin(), s.rend()}; }

}  // namespace

size_t find_text(std::string_view s, std::string_view what, size_t from) {
  if (from > s.size()) return std::string_view::npos;
  const void* hit = memmem(s.data() + from, s.size() - from, what.data(), what.size());
  return hit == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(hit) - s.data());
}

size_t rfind_text(std::string_view s, std::string_view what) {
  const size_t at = find_text(reversed(s), reversed(what));
  return at == std::string_view::npos ? at : s.size() - what.size() - at;
}

std::string strip(std::string_view s, const std::string* chars, bool left, bool right) {
  const auto goes = [chars](char32_t c) {
    if (chars == nullptr) return is_space(c);
    for (size_t pos = 0; pos < chars->size();) {
      if (next_point(*chars, pos) == c) return true;
    }
    return false;
  };
  size_t begin = 0, end = s.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!goes(next_point(s, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    size_t before = end;
    if (!goes(last_point(s, before))) break;
    end = before;
  }
  return std::string(s.substr(begin, end - begin));
}

std::string replace(const std::string& s, const std::string& from, const std::string& to, int64_t count) {
  if (count < 0) count = INT64_MAX;
  std::string out;
  if (from.empty()) {  // between all characters and at both ends
    checked_size(sys::utf8_count(s) + 1, size_of(to) + 1);
    for (size_t pos = 0; count > 0; --count) {
      out += to;
      if (pos >= s.size()) return out;
      const size_t start = pos;
      next_point(s, pos);
      out.append(s, start, pos - start);
      if (count == 1) return out.append(s, pos);
    }
    return s;
  }
  int64_t hits = 0;
  for (size_t at = find_text(s, from); at != std::string::npos && hits < count; ++hits)
    at = find_text(s, from, at + from.size());
  if (hits == 0) return s;
  checked_size(hits, size_of(to));
  size_t done = 0;
  for (; hits > 0; --hits) {
    const size_t at = find_text(s, from, done);
    out.append(s, done, at - done);
    out += to;
    done = at + from.size();
  }
  return out.append(s, done);
}

std::string join(const std::string& separator, const std::vector<std::string>& parts) {
  int64_t total = checked_size(size_of(separator), static_cast<int64_t>(parts.size()));
  for (const std::string& part : parts) total = checked_size(total + size_of(part), 1);
  std::string out;
  out.reserve(static_cast<size_t>(total));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string pad(const std::string& s, int64_t width, std::string_view fill, bool left, bool right) {
  const int64_t missing = width - sys::utf8_count(s);
  if (missing <= 0) return s;
  checked_size(missing, static_cast<int64_t>(fill.size()));
  const int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;  // as CPython rounds
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += s;
  for (int64_t i = before; i < missing; ++i) out += fill;
  return out;
}

std::vector<std::string> split(const std::string& s, const std::string& separator, int64_t limit) {
  if (limit < 0) limit = INT64_MAX;
  std::vector<std::string> parts;
  size_t at = 0;
  if (!separator.empty()) {
    for (size_t hit = find_text(s, separator); hit != std::string::npos && limit > 0;
         hit = find_text(s, separator, at), --limit) {
      push(parts, s.substr(at, hit - at));
      at = hit + separator.size();
    }
    push(parts, s.substr(at));
    return parts;
  }
  for (;;) {
    for (size_t next = at; at < s.size() && is_space(next_point(s, next)); at = next) {
    }
    if (at >= s.size()) return parts;
    if (limit-- == 0) {
      push(parts, s.substr(at));
      return parts;
    }
    size_t end = at;
    for (size_t next = end; end < s.size() && !is_space(next_point(s, next)); end = next) {
    }
    push(parts, s.substr(at, end - at));
    at = end;
  }
}

std::vector<std::string> rsplit(const std::string& s, const std::string& separator, int64_t limit) {
  if (limit < 0 || limit > size_of(s)) return split(s, separator, -1);
  std::vector<std::string> parts;
  if (!separator.empty()) {  // the same from the right
    parts = split(reversed(s), reversed(separator), limit);
    for (std::string& part : parts) part = reversed(part);
  } else {
    for (size_t end = s.size();;) {
      for (size_t before = end; end > 0 && is_space(last_point(s, before)); end = before) {
      }
      if (end == 0) break;
      if (limit-- == 0) {
        push(parts, s.substr(0, end));
        break;
      }
      size_t begin = end;
      for (size_t before = begin; begin > 0 && !is_space(last_point(s, before)); begin = before) {
      }
      push(parts, s.substr(begin, end - begin));
      end = begin;
    }
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(const std::string& s, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < s.size();) {
    const size_t at = pos;
    const char32_t c = next_point(s, pos);
    if (!ends_line(c)) continue;
    if (c == '\r' && pos < s.size() && s[pos] == '\n') ++pos;
    push(lines, s.substr(start, (keep_ends ? pos : at) - start));
    start = pos;
  }
  if (start < s.size()) push(lines, s.substr(start));
  return lines;
}

Value texts(std::vector<std::string> parts, bool safe) {
  Values all;
  all.reserve(parts.size());
  for (std::string& part : parts) all.emplace_back(std::move(part), safe);
  return Value::list(std::move(all));
}

}  // namespace braid::text::jinja
