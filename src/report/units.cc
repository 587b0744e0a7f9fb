#include "report/units.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace braid::report {
namespace {

// 3 significant digits, without an exponent: 9.99, 10.0, 999.
std::string digits(double x) {
  const double size = std::fabs(x);
  return fmt::format("{:.{}f}", x, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

template <size_t kCount>
std::string scaled(double x, double step, const char* const (&units)[kCount]) {
  size_t i = 0;
  // 999.5 would print as 1000: the next unit takes it.
  while (std::fabs(x) >= std::min(step, 999.5) && i + 1 < kCount) {
    x /= step;
    ++i;
  }
  const bool whole = i == 0 && x == std::floor(x);
  return fmt::format("{}{}{}", whole ? fmt::format("{:.0f}", x) : digits(x), units[i][0] ? " " : "", units[i]);
}

}  // namespace

std::string bytes(int64_t n) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return scaled(static_cast<double>(n), 1024, kUnits);
}

std::string count(double n) {
  constexpr const char* kUnits[] = {"", "K", "M", "B", "T"};
  return scaled(n, 1000, kUnits);
}

std::string counted(int64_t n, const char* noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

std::string rate(double n, double seconds, const char* unit) {
  if (!(seconds > 0)) return "-";
  constexpr const char* kPrefixes[] = {"", "K", "M", "G", "T", "P"};
  return fmt::format("{} {}/s", scaled(n / seconds, 1000, kPrefixes), unit);
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return digits(seconds * 1e6) + " us";
  if (seconds < 1) return digits(seconds * 1e3) + " ms";
  if (seconds < 60) return digits(seconds) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace braid::report
