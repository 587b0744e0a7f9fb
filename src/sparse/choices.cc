#include "sparse/choices.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/read.h"

namespace braid::sparse {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kMost = 1000;      // choices of a machine; the oldest is dropped
constexpr size_t kBytes = 1 << 20;  // a longer file is none of ours

// Empty if there is no cache folder.
fs::path file() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && fs::path(cache).is_absolute()) return fs::path(cache) / "braid" / "spmm.json";
  return home && *home ? fs::path(home) / ".cache" / "braid" / "spmm.json" : fs::path();
}

std::string machine_key() {
  const sys::Machine& machine = sys::machine();
  return fmt::format("{}, {}", machine.cpu_name, sys::name_of(machine.cpu_class));
}

ordered_json read_choices() {
  try {
    ordered_json all = io::parse_ordered(sys::read_file(file(), kBytes), "choices");
    if (all.is_object()) return all;
  } catch (const Error&) {
  }
  return ordered_json::object();
}

}  // namespace

// FNV-1a of the names, each with its end, folded to 32 bits.
uint64_t mark_of(std::span<const Way> ways) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const Way& way : ways) {
    for (const char* at = way.name;; ++at) {
      hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3;
      if (*at == '\0') break;
    }
  }
  return (hash ^ hash >> 32) & 0xffffffff;
}

const Way* remembered(const std::string& key) {
  const ordered_json all = read_choices();
  const auto here = all.find(machine_key());
  if (here == all.end() || !here->is_object()) return nullptr;
  const auto found = here->find(key);
  if (found == here->end() || !found->is_string()) return nullptr;
  for (const Way& way : ways()) {
    if (found->get_ref<const std::string&>() == way.name) return &way;
  }
  return nullptr;
}

void remember(const std::string& key, const Way& way) {
  if (file().empty()) return;
  ordered_json all = read_choices();
  ordered_json& here = all[machine_key()];
  if (!here.is_object()) here = ordered_json::object();
  here.erase(key);
  here[key] = way.name;
  while (here.size() > kMost) here.erase(here.begin());
  try {
    std::error_code ignored;
    fs::create_directories(file().parent_path(), ignored);
    io::write_text_file(file(), all.dump(1) + "\n");
  } catch (const Error&) {  // the choice lasts as long as this run
  }
}

}  // namespace braid::sparse
