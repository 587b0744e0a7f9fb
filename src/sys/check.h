// CHECK(condition, "format", values...): a broken invariant is a bug in braid. Prints where and what, and ends the
// process with exit code 70. Never reachable through user input. DCHECK is for inner loops and vanishes with NDEBUG.
#pragma once
#include <fmt/format.h>

#include <string>

namespace braid::sys {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);

template <class... Args>
std::string check_values(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
inline std::string check_values() { return {}; }

}  // namespace braid::sys

#define CHECK(condition, ...)                                                                              \
  do {                                                                                                     \
    if (!(condition)) [[unlikely]]                                                                         \
      ::braid::sys::check_failed(__FILE__, __LINE__, #condition, ::braid::sys::check_values(__VA_ARGS__)); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition, ...) static_cast<void>(0)
#else
#define DCHECK(condition, ...) CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
