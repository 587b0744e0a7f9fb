// All of a file or of standard input at once, pipes and devices too. Where bytes are only looked at, sys/mapped_file.h
// does without the copy.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace braid::sys {

// Error when it cannot be read or holds more than `bytes_max`.
std::string read_file(const std::filesystem::path& path, size_t bytes_max = SIZE_MAX);

std::string read_standard_input();

}  // namespace braid::sys
