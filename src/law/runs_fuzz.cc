// Any bytes are a table of runs or give a one-line Error; the rows of an accepted one are numbers that a fit can take.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "law/hull.h"
#include "law/runs.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  try {
    const law::Runs runs = law::read_runs({reinterpret_cast<const char*>(data), size}, "input");
    CHECK(runs.count >= 1 && runs.count <= std::ssize(runs.rows), "{} of {}", runs.count, runs.rows.size());
    for (const law::Row& r : runs.rows) {
      CHECK(std::isfinite(std::log(r.params) + std::log(r.tokens) + std::log(r.flops) + std::log(r.loss)), "{}", r.run);
      CHECK(r.run >= 0 && r.run < runs.count, "{} of {}", r.run, runs.count);
    }
    const auto hull = law::lower_hull(runs.rows);
    for (size_t i = 1; i < hull.size(); ++i) CHECK(hull[i].loss < hull[i - 1].loss, "{}", i);
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
  return 0;
}
