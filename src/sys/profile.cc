#include "sys/profile.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "sys/detect.h"
#include "sys/env.h"
#include "sys/error.h"
#include "sys/read.h"

namespace braid::sys {
namespace {

constexpr const char* kMachine = "machine";

bool is_there(const std::string& path) {
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored);
}

}  // namespace

std::string profile_path() {
  if (const char* named = std::getenv("BRAID_PROFILE")) return named;
  const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
  if (config && *config) return std::string(config) + "/braid/profile";
  return home && *home ? std::string(home) + "/.config/braid/profile" : "";
}

std::map<std::string, std::string> read_profile() {
  constexpr size_t kBytesMax = 64 << 10;  // a few hundred ops of 50 bytes fit many times over
  const std::string path = profile_path();
  if (!is_there(path)) return {};
  return parse_profile(path, read_file(path, kBytesMax));
}

void need_named_profile() {
  const char* named = std::getenv("BRAID_PROFILE");
  if (!named || !*named || is_there(named)) return;
  fail("BRAID_PROFILE", {.what = "names a file that does not exist",
                         .got = printable(named),
                         .hint = "braid bench MODEL --tune, which writes it, or BRAID_PROFILE= for no profile"});
}

std::string machine_line(const std::string& cpu_cap) {
  const Machine m = detect_machine(cpu_cap);
  std::string name = m.cpu_name;
  for (char& ch : name) {
    if (ch == '#' || ch == '=') ch = ' ';  // they have a meaning in a profile
  }
  return fmt::format("{}, {}, {} cores, braid {}", name, name_of(m.cpu_class), m.cores, BRAID_VERSION);
}

void keep_if_of(const std::string& machine, std::map<std::string, std::string>& choices) {
  const auto found = choices.find(kMachine);
  if (found == choices.end()) return;
  const bool fits = found->second == machine;
  choices.erase(found);
  if (!fits) choices.clear();
}

std::string profile_misfit() {
  const std::map<std::string, std::string> choices = read_profile();
  const auto found = choices.find(kMachine);
  const std::string here = machine_line(env().cpu);
  if (found == choices.end() || found->second == here) return "";
  return format_message(printable(profile_path()), {.what = "was measured on another machine or version",
                                                    .got = printable(found->second),
                                                    .expected = here,
                                                    .hint = "braid bench --tune"});
}

}  // namespace braid::sys
