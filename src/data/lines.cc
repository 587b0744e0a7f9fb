#include "data/lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "sys/error.h"

namespace braid::data {
namespace fs = std::filesystem;

std::vector<fs::path> files_of(const fs::path& path, const std::vector<std::string>& extensions) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return {path};
  std::vector<fs::path> files;
  for (auto it = fs::recursive_directory_iterator(path, failed); !failed && it != fs::recursive_directory_iterator();
       it.increment(failed)) {
    std::error_code none;
    const bool hidden = it->path().filename().string().starts_with('.');
    if (!hidden && it->is_regular_file(none) && std::ranges::count(extensions, it->path().extension().string()) > 0) {
      files.push_back(it->path());
    }
  }
  if (failed) fail(printable(path.string()), {.what = "the folder cannot be read", .got = failed.message()});
  std::ranges::sort(files);
  return files;
}

std::vector<Line> next_lines(std::string_view& rest, int64_t& number, const fs::path& path) {
  constexpr int64_t kLinesAtOnce = 4096;
  std::vector<Line> lines;
  while (!rest.empty() && std::ssize(lines) < kLinesAtOnce) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    lines.push_back({line, fmt::format("{} line {}", printable(path.string()), number)});
  }
  return lines;
}

}  // namespace braid::data
