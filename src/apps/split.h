// Lists on the command line: "a,b" is two words, "" is one that is empty.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace braid::apps {

inline std::vector<std::string> split(const std::string& text, char at = ',') {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace braid::apps
