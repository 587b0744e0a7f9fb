#include "sys/env.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "sys/error.h"

namespace braid::sys {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
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
      fail("BRAID_THREADS", {.what = "not a number of threads", .got = printable(text), .expected = "1 to 1024"});
    }
  }
  e.verbose_dispatch = variable("BRAID_VERBOSE").find("dispatch") != std::string::npos;
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
  return e;
}

}  // namespace

const Env& env() {
  static const Env e = read_env();
  return e;
}

}  // namespace braid::sys
