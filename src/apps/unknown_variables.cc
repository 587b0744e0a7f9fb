#include "apps/unknown_variables.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "apps/bench_report.h"
#include "apps/cli_pages.h"
#include "math/packed_blocking.h"
#include "math/thresholds.h"
#include "sys/env.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "sys/profile.h"

namespace braid::apps {
namespace {

// What a profile may name, but for products (math/packed_blocking.h).
std::vector<std::string> choices() {
  const std::vector<std::string_view> ops = op_names();
  std::vector<std::string> names(ops.begin(), ops.end());
  for (const Threshold& t : threshold_table()) names.emplace_back(t.name);
  return names;
}

void note_unknown(const std::string& where, const std::string& near) {
  fmt::print(stderr, "braid: {}{}\n", where, near.empty() ? "" : "; did you mean " + near + "?");
}

void check_profile(bool writes_it) {
  if (!writes_it) sys::need_named_profile();
  thresholds();
  packed::blockings();
  if (const std::string misfit = sys::profile_misfit(); !misfit.empty())
    fmt::print(stderr, "braid: ignored: {}\n", misfit);
  const std::vector<std::string> known = choices();
  for (const auto& [name, value] : sys::env().profile_rows) {
    if (std::ranges::find(known, name) != known.end() || packed::parse_key(name)) continue;
    note_unknown(fmt::format("[{}] {} is nothing that Braid chooses", printable(sys::profile_path()), printable(name)),
                 sys::nearest(name, known));
  }
}

// BRAID_OP_PACKED_... (math/packed_blocking.h).
bool names_a_product(std::string_view variable) {
  constexpr std::string_view kOp = "BRAID_OP_";
  if (!variable.starts_with(kOp)) return false;
  std::string name(variable.substr(kOp.size()));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return packed::parse_key(name).has_value();
}

}  // namespace

void check_variables(std::vector<Page> (*pages)(), bool writes_profile) {
  check_profile(writes_profile);
  constexpr std::string_view kPrefix = "BRAID_";
  std::vector<std::string> set;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view line = *entry;
    if (line.starts_with(kPrefix)) set.emplace_back(line.substr(0, line.find('=')));
  }
  if (set.empty()) return;
  // Of the whole process (sys/env.h), and of the tests.
  std::vector<std::string> known = {
      "BRAID_CPU",       "BRAID_THREADS",  "BRAID_VERBOSE",     "BRAID_PROFILE",        "BRAID_POISON",
      "BRAID_TINY",      "BRAID_FIXTURES", "BRAID_PEFT_PYTHON", "BRAID_CLIENTS_PYTHON", "BRAID_LM_EVAL_PYTHON",
      "BRAID_ARTIFACTS", "BRAID_GEMSTONES"};
  for (const std::string& name : choices()) known.push_back("BRAID_OP_" + upper(name));
  for (const Page& page : pages()) {
    for (const Item& item : page.items) {
      if (!item.long_name().empty()) known.push_back(item.variable());
    }
  }
  for (const std::string& name : set) {
    if (std::find(known.begin(), known.end(), name) != known.end() || names_a_product(name)) continue;
    const std::string near = sys::nearest(name, known);
    const bool alike = near.starts_with("BRAID_OP_") == name.starts_with("BRAID_OP_");
    note_unknown(fmt::format("[{}] is set, but is not a variable of Braid", printable(name)), alike ? near : "");
  }
}

void note_a_folder_named_tiny(int argc, const char* const* argv) {
  const bool named = std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "tiny"; });
  std::error_code none;
  if (named && std::filesystem::exists("tiny/config.json", none))
    fmt::print(stderr, "note: tiny is the model that ships with Braid; the folder here is ./tiny\n");
}

}  // namespace braid::apps
