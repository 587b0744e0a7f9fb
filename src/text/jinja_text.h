// Operations on text that methods and filters share, with the sizes of their results bounded before they are made.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace braid::text::jinja {

// Linear time in the worst case, unlike std::string::find. npos when `what` is not there.
size_t find_text(std::string_view s, std::string_view what, size_t from = 0);
size_t rfind_text(std::string_view s, std::string_view what);  // the last occurrence; copies both

// Strips whitespace, or the characters of `chars` if given.
std::string strip(std::string_view s, const std::string* chars, bool left = true, bool right = true);
std::string replace(const std::string& s, const std::string& from, const std::string& to,
                    int64_t count);  // count < 0: all
std::string join(const std::string& separator, const std::vector<std::string>& parts);
// Columns of the result: spaces (or `fill`) to the left and right of s until it has `width` code points.
std::string pad(const std::string& s, int64_t width, std::string_view fill, bool left, bool right);
// Python's split and rsplit; an empty separator is whitespace of any length. limit < 0: no limit.
std::vector<std::string> split(const std::string& s, const std::string& separator, int64_t limit);
std::vector<std::string> rsplit(const std::string& s, const std::string& separator, int64_t limit);
std::vector<std::string> split_lines(const std::string& s, bool keep_ends);
Value texts(std::vector<std::string> parts, bool safe = false);  // a list

}  // namespace braid::text::jinja
