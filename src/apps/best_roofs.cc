#include "apps/best_roofs.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct NamedRoof {
  const char* key;
  double sys::Roofs::*value;
};
constexpr NamedRoof kRoofs[] = {{"read_gbs_1", &sys::Roofs::read_gbs_1},
                                {"read_gbs", &sys::Roofs::read_gbs},
                                {"fp32_gflops", &sys::Roofs::fp32_gflops},
                                {"bf16_gflops", &sys::Roofs::bf16_gflops},
                                {"int8_gops", &sys::Roofs::int8_gops}};

// "" where there is no folder for caches.
fs::path file() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && fs::path(cache).is_absolute()) return fs::path(cache) / "braid" / "roofs.json";
  return home && *home ? fs::path(home) / ".cache" / "braid" / "roofs.json" : fs::path();
}

std::string key_of(int threads) { return fmt::format("{}, {} threads", sys::machine().cpu_name, threads); }

constexpr double kMost = 1e7;  // GB/s, GFLOP/s: no machine is faster, whatever a file says

// An object; empty where the file is missing, longer than any of ours or not JSON.
ordered_json read() {
  constexpr size_t kBytes = 1 << 20;
  try {
    ordered_json all = io::parse_ordered(sys::read_file(file(), kBytes), "roofs");
    if (all.is_object()) return all;
  } catch (const Error&) {
  }
  return ordered_json::object();
}

sys::Roofs stored(const ordered_json& all, int threads) {
  sys::Roofs out{.threads = threads};
  const auto found = all.find(key_of(threads));
  if (found == all.end() || !found->is_object()) return out;
  for (const NamedRoof& roof : kRoofs) {
    const auto value = found->find(roof.key);
    if (value == found->end() || !value->is_number()) continue;
    if (const auto n = value->get<double>(); n > 0 && n < kMost) out.*roof.value = n;
  }
  return out;
}

}  // namespace

const BestRoofs& best_roofs(int threads) {
  static std::map<int, BestRoofs> all;
  const auto found = all.find(threads);
  if (found != all.end()) return found->second;
  const sys::Roofs known = sys::best_known_roofs(threads);
  const bool of_class = known.read_gbs > 0;
  return all[threads] = {of_class ? known : stored(read(), threads), of_class};
}

void remember_roofs(const sys::Roofs& measured) {
  if (best_roofs(measured.threads).of_class || file().empty()) return;
  ordered_json all = read();
  const sys::Roofs before = stored(all, measured.threads);
  ordered_json best = ordered_json::object();
  bool higher = false;
  for (const NamedRoof& roof : kRoofs) {
    higher = higher || measured.*roof.value > before.*roof.value;
    best[roof.key] = std::max(measured.*roof.value, before.*roof.value);
  }
  if (!higher) return;
  all[key_of(measured.threads)] = best;
  try {
    std::error_code ignored;
    fs::create_directories(file().parent_path(), ignored);
    io::write_text_file(file(), all.dump(1) + "\n");
  } catch (const Error&) {
  }
}

bool off(double measured, double best, bool of_class) {
  return sys::too_low(measured, best) || (of_class && sys::too_high(measured, best));
}

}  // namespace braid::apps
