// Parts of matrices on ranks against the whole ones, bit for bit, and the elements that are sent.
#include "train/divided_matrices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "comm/inproc.h"
#include "core/philox.h"
#include "kernels/muon/muon.h"

namespace braid::train {
namespace {

struct Case {
  int64_t rows, cols;
  bool by_cols;
  int64_t units;  // of the side that is divided
};

// More of them than ranks, of both sides and odd sizes; units that do not divide are held by several ranks, or
// unevenly.
constexpr Case kCases[] = {
    {58, 24, false, 58}, {24, 58, true, 58}, {60, 17, false, 2}, {7, 5, false, 7}, {36, 12, true, 12}};

Range held_by(const Case& c, int rank, int ranks) {
  const int64_t extent = c.by_cols ? c.cols : c.rows, unit = extent / c.units;
  if (c.units < ranks) return {rank * c.units / ranks * unit, unit};
  const Range own = share_of(c.units, rank, ranks);
  return {own.begin * unit, own.count * unit};
}

std::vector<float> matrix_of(const Case& c) {
  std::vector<float> x(static_cast<size_t>(c.rows * c.cols));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(std::sin(static_cast<double>(i * i % 101) + static_cast<double>(c.rows)));
  return x;
}

// All elements of `x` that the range has, in order.
std::vector<float> part_of(const Case& c, const std::vector<float>& x, const Range& held) {
  std::vector<float> part;
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.cols; ++j) {
      const int64_t at = c.by_cols ? j : i;
      if (at >= held.begin && at < held.begin + held.count) part.push_back(x[static_cast<size_t>(i * c.cols + j)]);
    }
  }
  return part;
}

std::vector<float> orthogonal(const Case& c) {
  std::vector<float> x = matrix_of(c);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  run(ctx, Orthogonalize{.x = mut_view_of(x.data(), {c.rows, c.cols})});
  return x;
}

TEST(DividedMatrices, PartsAreThoseOfTheWholeMatrix) {
  for (const bool duplicate : {false, true}) {
    for (const int ranks : {2, 3, 4, 7}) {
      comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
        DividedMatrices matrices(world, duplicate);
        std::vector<int64_t> numbers;
        std::vector<std::vector<float>> parts;
        for (const Case& c : kCases) {
          const Range held = held_by(c, world.rank(), ranks);
          numbers.push_back(matrices.add({c.rows, c.cols, c.by_cols}, held));
          parts.push_back(part_of(c, matrix_of(c), held));
        }
        Arena arena;
        Ctx ctx{.arena = arena, .threads = 1};
        const auto at_once = static_cast<size_t>(matrices.at_once());
        for (size_t i = 0; i < parts.size(); i += at_once) {
          std::vector<MutView> views;
          const size_t n = std::min(at_once, parts.size() - i);
          for (size_t j = i; j < i + n; ++j) views.push_back(mut_view_of(parts[j].data(), {std::ssize(parts[j])}));
          matrices.orthogonalize(ctx, std::span(numbers).subspan(i, n), views);
        }
        for (size_t i = 0; i < parts.size(); ++i) {
          const Range held = held_by(kCases[i], world.rank(), ranks);
          EXPECT_EQ(parts[i], part_of(kCases[i], orthogonal(kCases[i]), held)) << i << " of " << ranks << " ranks";
        }
      });
    }
  }
}

// The formulas of divided_matrices.h.
TEST(DividedMatrices, ElementsThatAreSent) {
  constexpr int64_t kRows = 64, kCols = 32, kBytes = kRows * kCols * 4;
  for (const int ranks : {2, 4, 8}) {
    for (const bool duplicate : {false, true}) {
      comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
        DividedMatrices matrices(world, duplicate);
        const Range held = share_of(kRows, world.rank(), ranks);
        std::vector<std::vector<float>> parts(static_cast<size_t>(ranks), std::vector<float>(kRows * kCols / ranks, 1));
        std::vector<int64_t> numbers;
        std::vector<MutView> views;
        for (auto& part : parts) {
          numbers.push_back(matrices.add({kRows, kCols, false}, held));
          views.push_back(mut_view_of(part.data(), {std::ssize(part)}));
        }
        world.barrier().wait();
        const auto sent = [&] { return world.traffic().bytes[0] + world.traffic().bytes[1]; };
        const int64_t before = sent();
        Arena arena;
        Ctx ctx{.arena = arena, .threads = 1};
        const auto n = static_cast<size_t>(matrices.at_once());
        for (size_t i = 0; i < views.size(); i += n)
          matrices.orthogonalize(ctx, std::span(numbers).subspan(i, n), std::span(views).subspan(i, n));
        const int64_t each = kBytes * (ranks - 1) / ranks;
        EXPECT_EQ(sent() - before, duplicate ? each * ranks : 2 * each) << ranks;
      });
    }
  }
}

}  // namespace
}  // namespace braid::train
