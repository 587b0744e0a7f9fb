#include "sys/read.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>

#include "sys/error.h"

namespace braid::sys {
namespace {

std::string read_all(FILE* file, const std::string& where, size_t bytes_max) {
  constexpr size_t kPiece = 64 << 10;
  std::string text;
  for (size_t got = 1; got > 0;) {
    const size_t size = text.size();
    text.resize(size + kPiece);
    got = std::fread(text.data() + size, 1, kPiece, file);
    text.resize(size + got);
    if (text.size() > bytes_max)
      fail(where, {.what = "is too large", .expected = fmt::format("at most {} bytes", bytes_max)});
  }
  if (std::ferror(file)) fail(where, {.what = "cannot be read", .got = std::strerror(errno)});
  return text;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, size_t bytes_max) {
  if (path == "-") return read_all(stdin, "standard input", bytes_max);
  const std::string where = printable(path.string());
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail(where, {.what = "cannot be read", .got = std::strerror(errno)});
  return read_all(file.get(), where, bytes_max);
}

std::string read_standard_input() { return read_file("-"); }

void for_each_line(const std::filesystem::path& path, FunctionRef<void(const std::string&, int64_t)> body) {
  const bool standard = path == "-";
  std::ifstream file;
  if (!standard) file.open(path, std::ios::binary);
  std::istream& in = standard ? std::cin : file;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") != line.npos) body(line, number);
  }
  if (in.bad() || !(standard || file.is_open())) {
    fail(standard ? "standard input" : printable(path.string()),
         {.what = "cannot be read", .got = std::strerror(errno)});
  }
}

}  // namespace braid::sys
