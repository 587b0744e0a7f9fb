// Files of JSON lines: which files a path names, and their lines in order, rendered in parallel.
#pragma once
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/reading.h"
#include "sys/mapped_file.h"
#include "sys/parallel.h"

namespace braid::data {

// The file itself, whatever its name, or the files of a folder and those below with these extensions, sorted by name.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& path,
                                            const std::vector<std::string>& extensions);

struct Line {
  std::string_view text;
  std::string where;  // "talks.jsonl line 3", for errors
};

// The next lines that are not blank, at most 4096 of them; `number` counts all.
std::vector<Line> next_lines(std::string_view& rest, int64_t& number, const std::filesystem::path& path);

// Calls sink(render(line)) for every line of a file, in order. `render` runs in parallel; the first line that throws
// ends the call. `reading` may be empty.
template <class Render, class Sink>
void each_line(const std::filesystem::path& path, const Render& render, const Sink& sink, const Reading& reading) {
  const sys::MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const int64_t total = std::ssize(rest);
  int64_t number = 0;
  const auto tell = [&] {
    if (reading) reading(path.string(), total - std::ssize(rest), total);
  };
  tell();
  while (!rest.empty()) {
    const std::vector<Line> lines = next_lines(rest, number, path);
    std::vector<decltype(render(lines[0]))> rendered(lines.size());
    std::vector<std::exception_ptr> errors(lines.size());
    sys::parallel_tasks(sys::default_threads(), std::ssize(lines), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      try {
        rendered[at] = render(lines[at]);
      } catch (...) {
        errors[at] = std::current_exception();
      }
    });
    for (size_t i = 0; i < lines.size(); ++i) {
      if (errors[i]) std::rethrow_exception(errors[i]);
      sink(rendered[i]);
    }
    tell();
  }
}

}  // namespace braid::data
