#include "train/grid.h"

#include <array>
#include <charconv>
#include <string_view>

#include "sys/error.h"

namespace braid::train {
namespace {

constexpr const char* kKey = "parallel.grid";
constexpr int64_t kMost = 256;  // ranks of an axis

}  // namespace

Grid parse_grid(const std::string& word) {
  std::array<int64_t, 4> sizes{};
  const char *at = word.data(), *end = at + word.size();
  bool good = true;
  for (size_t i = 0; good && i < sizes.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, sizes[i]);
    const bool last = i + 1 == sizes.size();
    good =
        error == std::errc() && sizes[i] >= 1 && sizes[i] <= kMost && (last ? next == end : next < end && *next == ',');
    at = next + (last ? 0 : 1);
  }
  if (good) return {.x = sizes[0], .y = sizes[1], .z = sizes[2], .d = sizes[3]};
  fail(kKey, {.what = "is not a grid",
              .got = printable(word),
              .expected = fmt::format("x,y,z,d, each from 1 to {}", kMost),
              .hint = "parallel.grid=\"2,1,1,1\""});
}

void check_grid(const Grid& grid, int ranks) {
  const int64_t product = grid.x * grid.y * grid.z * grid.d;
  if (product == ranks) return;
  fail(kKey, {.what = "does not make the number of ranks",
              .got = fmt::format("{} x {} x {} x {} = {}", grid.x, grid.y, grid.z, grid.d, product),
              .expected = std::to_string(ranks),
              .hint = fmt::format("--ranks {}", product)});
}

}  // namespace braid::train
