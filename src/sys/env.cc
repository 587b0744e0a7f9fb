#include "sys/env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "sys/error.h"
#include "sys/profile.h"

namespace braid::sys {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string_view trim(std::string_view text) {
  constexpr const char* kSpaces = " \t\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

Env read_env() {
  Env e;
  e.cpu = variable("BRAID_CPU");
  if (!e.cpu.empty() && e.cpu != "avx2" && e.cpu != "avx512" && e.cpu != "amx") {
    fail("BRAID_CPU", {.what = "unknown CPU class", .got = e.cpu, .expected = "avx2, avx512 or amx"});
  }
  if (const std::string text = variable("BRAID_THREADS"); !text.empty()) {
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, e.threads);
    if (status != std::errc{} || stop != end || e.threads < 1 || e.threads > 1024) {
      fail("BRAID_THREADS", {.what = "invalid thread count", .got = printable(text), .expected = "1 to 1024"});
    }
  }
  const std::string verbose = variable("BRAID_VERBOSE");
  e.verbose_dispatch = verbose == "dispatch";
  if (!verbose.empty() && !e.verbose_dispatch)
    fail("BRAID_VERBOSE", {.what = "unknown", .got = printable(verbose), .expected = "dispatch"});
  e.poison = variable("BRAID_POISON") == "1";
  constexpr std::string_view prefix = "BRAID_OP_";
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view line = *entry;
    const size_t equals = line.find('=');
    if (!line.starts_with(prefix) || equals == std::string_view::npos) continue;
    std::string name(line.substr(prefix.size(), equals - prefix.size()));
    for (char& ch : name) {
      if (ch >= 'A' && ch <= 'Z') ch = static_cast<char>(ch - 'A' + 'a');
    }
    e.forced_rows[name] = std::string(line.substr(equals + 1));
  }
  e.profile_rows = read_profile();
  if (!e.profile_rows.empty()) keep_if_of(machine_line(e.cpu), e.profile_rows);
  return e;
}

}  // namespace

std::map<std::string, std::string> parse_profile(std::string_view where, std::string_view text) {
  std::map<std::string, std::string> rows;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end), line = trim(whole.substr(0, whole.find('#')));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const size_t equals = std::min(line.find('='), line.size());
    const std::string_view name = trim(line.substr(0, equals)),
                           row = trim(line.substr(std::min(equals + 1, line.size())));
    const std::string location = fmt::format("{}:{}", printable(where), number);
    const bool free = name == "machine" && !row.empty();  // whose line is compared whole (sys/profile.h)
    if (!is_name(name) || (!is_name(row) && !free)) {
      fail(location, {.what = "malformed line",
                      .got = printable(line),
                      .expected = "op_name = row_name, or threshold = number",
                      .hint = "removing the line, or BRAID_PROFILE= for no profile"});
    }
    if (!rows.emplace(name, row).second)
      fail(location, {.what = "the name has a line already", .got = std::string(line)});
  }
  return rows;
}

const Env& env() {
  static const Env e = read_env();
  return e;
}

}  // namespace braid::sys
