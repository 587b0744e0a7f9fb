// Reads a file or standard input, whole or by lines; also pipes and devices. sys/mapped_file.h avoids the copy where
// bytes are only inspected.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "sys/function_ref.h"

namespace braid::sys {

// "-" is standard input. Error when it cannot be read or holds more than `bytes_max`.
std::string read_file(const std::filesystem::path& path, size_t bytes_max = SIZE_MAX);

std::string read_standard_input();

// Calls `body` with every non-blank line and its number as it arrives; "-" is standard input. Error when it cannot be
// read.
void for_each_line(const std::filesystem::path& path, FunctionRef<void(const std::string& line, int64_t number)> body);

}  // namespace braid::sys
