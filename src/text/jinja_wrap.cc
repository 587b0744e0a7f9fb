#include "text/jinja_wrap.h"

#include <algorithm>
#include <span>

#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

// A line with the offsets of its code points.
struct Points {
  explicit Points(const std::string& line) : bytes(line) {
    for (size_t pos = 0; pos < line.size();) {
      at.push_back(pos);
      points.push_back(next_point(line, pos));
    }
    at.push_back(line.size());
  }
  size_t size() const { return points.size(); }
  std::string text(size_t begin, size_t end) const { return bytes.substr(at[begin], at[end] - at[begin]); }

  const std::string& bytes;
  std::vector<char32_t> points{};
  std::vector<size_t> at{};
};

struct Chunk {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

bool is_word(char32_t c) { return is_letter(c) || is_numeric(c) || c == '_'; }  // \w
bool is_word_letter(char32_t c) { return is_word(c) && !is_decimal(c); }        // [^\d\W]
bool is_blank(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }      // of textwrap: ASCII alone
bool is_word_or_mark(char32_t c) {
  return is_word(c) || std::u32string_view(U"!\"'&.,?").find(c) != std::u32string_view::npos;
}

// textwrap.TextWrapper.wordsep_re: blanks, dashes between words, and words up to a hyphen or a dash.
class Splitter {
 public:
  explicit Splitter(const std::vector<char32_t>& s) : s_(s) {}

  size_t end_of(size_t begin, bool hyphens) const {
    size_t i = begin;
    if (is_blank(s_[i])) {
      while (i < s_.size() && is_blank(s_[i])) ++i;
      return i;
    }
    if (!hyphens) {
      while (i < s_.size() && !is_blank(s_[i])) ++i;
      return i;
    }
    if (const size_t end = dash_end(begin); end > begin) return end;
    for (i = begin + 1;; ++i) {
      if (hyphen_ends(i)) return i + 1;
      if (i == s_.size() || is_blank(s_[i]) || dash_end(i) > i) return i;
    }
  }

 private:
  char32_t at(size_t i) const { return i < s_.size() ? s_[i] : U' '; }
  // Behind two or more dashes at i, which are between words; else i.
  size_t dash_end(size_t i) const {
    if (i == 0 || !is_word_or_mark(s_[i - 1])) return i;
    size_t end = i;
    while (at(end) == '-') ++end;
    return end >= i + 2 && end < s_.size() && is_word(s_[end]) ? end : i;
  }
  // A hyphen at i between at least two letters, or a letter, a hyphen and one more, and another such part.
  bool hyphen_ends(size_t i) const {
    if (at(i) != '-' || i < 2) return false;
    const bool two = is_word_letter(s_[i - 1]) && is_word_letter(s_[i - 2]);
    const bool three = i >= 3 && is_word_letter(s_[i - 3]) && s_[i - 2] == '-' && is_word_letter(s_[i - 1]);
    if (!(two || three) || !is_word_letter(at(i + 1))) return false;
    return is_word_letter(at(i + 2)) || (at(i + 2) == '-' && is_word_letter(at(i + 3)));
  }

  const std::vector<char32_t>& s_;
};

class Wrapper {
 public:
  Wrapper(const Points& line, size_t width, bool break_long, bool hyphens)
      : line_(line), width_(width), break_long_(break_long), hyphens_(hyphens) {
    const Splitter split(line.points);
    for (size_t at = 0; at < line.size();) {
      const size_t end = split.end_of(at, hyphens);
      left_.push_back({at, end});
      at = end;
    }
    std::reverse(left_.begin(), left_.end());
  }

  std::vector<std::string> lines() {
    std::vector<std::string> lines;
    while (!left_.empty()) {
      if (!lines.empty() && is_space_alone(left_.back())) left_.pop_back();
      std::vector<Chunk> own;
      size_t length = 0;
      for (; !left_.empty() && length + left_.back().size() <= width_; left_.pop_back()) {
        own.push_back(left_.back());
        length += left_.back().size();
      }
      if (!left_.empty() && left_.back().size() > width_) take_long(own, width_ - length);
      if (!own.empty() && is_space_alone(own.back())) own.pop_back();
      if (!own.empty()) lines.push_back(line_.text(own.front().begin, own.back().end));
    }
    return lines;
  }

 private:
  bool is_space_alone(const Chunk& c) const {
    return std::all_of(line_.points.begin() + static_cast<int64_t>(c.begin),
                       line_.points.begin() + static_cast<int64_t>(c.end), is_space);
  }
  // As much of the next chunk as `space` holds, up to its last hyphen there.
  void take_long(std::vector<Chunk>& own, size_t space) {
    Chunk& next = left_.back();
    if (!break_long_) {
      if (!own.empty()) return;
      own.push_back(next);
      left_.pop_back();
      return;
    }
    size_t count = space;
    if (hyphens_ && next.size() > space) {
      size_t hyphen = space;  // the last before it, or none
      while (hyphen > 0 && line_.points[next.begin + hyphen - 1] != '-') --hyphen;
      const auto first = line_.points.begin() + static_cast<int64_t>(next.begin);
      if (hyphen > 1 &&
          std::any_of(first, first + static_cast<int64_t>(hyphen - 1), [](char32_t c) { return c != '-'; }))
        count = hyphen;
    }
    own.push_back({next.begin, next.begin + count});
    next.begin += count;
  }

  const Points& line_;
  size_t width_;
  bool break_long_, hyphens_;
  std::vector<Chunk> left_{};  // the next one last
};

}  // namespace

std::vector<std::string> wrapped(const std::string& line, int64_t width, bool break_long_words, bool break_on_hyphens) {
  const Points points(line);
  return Wrapper(points, static_cast<size_t>(width), break_long_words, break_on_hyphens).lines();
}

}  // namespace braid::text::jinja
