#include "train/grid.h"

#include <charconv>
#include <vector>

#include "sys/error.h"

namespace braid::train {
namespace {

constexpr const char* kKey = "parallel.grid";
constexpr int64_t kMost = 256;  // ranks of an axis

// Numbers between commas, three or four; empty: something else.
std::vector<int64_t> sizes_of(const std::string& word) {
  std::vector<int64_t> sizes;
  const char *at = word.data(), *end = at + word.size();
  while (sizes.size() < 4) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || size > kMost) return {};
    sizes.push_back(size);
    if (next == end) return sizes.size() < 3 ? std::vector<int64_t>() : sizes;
    if (*next != ',') return {};
    at = next + 1;
  }
  return {};
}

}  // namespace

Grid parse_grid(const std::string& word) {
  const std::vector<int64_t> sizes = sizes_of(word);
  if (sizes.size() == 4) return {.x = sizes[0], .y = sizes[1], .z = sizes[2], .d = sizes[3]};
  if (sizes.size() == 3) return {.x = sizes[0] * sizes[1] * sizes[2], .d = 1};
  fail(kKey, {.what = "is not a grid",
              .got = printable(word),
              .expected = fmt::format("x,y,z,d (of a graph x,y,z), each from 1 to {}", kMost),
              .hint = "parallel.grid=\"2,1,1,1\""});
}

std::optional<std::array<int64_t, 3>> graph_grid(const std::string& word) {
  const std::vector<int64_t> sizes = sizes_of(word);
  if (sizes.size() != 3) return std::nullopt;
  return std::array{sizes[0], sizes[1], sizes[2]};
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
