#include "sparse/problem.h"

#include <algorithm>
#include <utility>

#include "core/op.h"
#include "core/philox.h"
#include "sparse/race.h"

namespace braid::sparse {
namespace {

Tensor random_tensor(Arena& arena, const Shape& shape, uint32_t stream) {
  Tensor t(arena, DType::f32, shape);
  auto* values = t.mut().as<float>();
  for (int64_t i = 0; i < shape.count(); i += 4) {
    const auto r = philox({.seed = 1, .stream = stream}, static_cast<uint64_t>(i / 4));
    for (int64_t k = 0; k < std::min<int64_t>(4, shape.count() - i); ++k)
      values[i + k] = 2 * uniform(r[static_cast<size_t>(k)]) - 1;
  }
  return t;
}

}  // namespace

Problem::Problem(const graph::Csr& csr, int64_t width)
    : csr_(csr),
      width_(width),
      arena_(std::make_unique<Arena>()),
      ctx_{.arena = *arena_, .threads = 1},
      x_(random_tensor(*arena_, {csr.cols, width}, 0)),
      edge_(random_tensor(*arena_, {csr.edges(), 1}, 1)),
      y_(*arena_, DType::f32, {csr.rows, width}) {
  std::vector<uint8_t> seen(static_cast<size_t>(csr.cols), 0);
  for (const int32_t j : csr.col) touched_ += 1 - std::exchange(seen[static_cast<size_t>(j)], uint8_t{1});
}

SpmmFwd Problem::call(const Way& way) const {
  return {.rowptr = csr_.rowptr_view(),
          .col = csr_.col_view(),
          .x = x_.view(),
          .edge = edge_.view(),
          .y = y_.mut(),
          .op = EdgeOp::mul,
          .tuning = way.tuning,
          .pack = way.packed ? &*pack_ : nullptr};
}

std::function<void()> Problem::run(const Way& way) {
  if (!possible(way, width_)) return nullptr;
  if (way.packed && !pack_) pack_ = pack_spmm(csr_.rowptr_view(), csr_.col_view(), edge_.view());
  if (way.packed && !pack_) return nullptr;
  return [this, &way] { braid::run(ctx_, call(way)); };
}

std::function<void()> Problem::run(const char* name) {
  const Row<SpmmFwd>& row = row_named<SpmmFwd>(name);
  if (refusal(row, call(ways()[0]), Device::cpu)) return nullptr;
  return [this, &row] { run_row(ctx_, call(ways()[0]), row); };
}

double Problem::pack_seconds() {
  const auto pack = [&] { pack_spmm(csr_.rowptr_view(), csr_.col_view(), edge_.view()); };
  const std::vector<double> times = race({pack}, 3, 0)[0];
  return *std::min_element(times.begin(), times.end());
}

double Problem::bytes_least(DType features) const {
  const auto edges = static_cast<double>(csr_.edges()), rows = static_cast<double>(csr_.rows),
             read = static_cast<double>(size_of(features) * touched_);
  return 8 * edges + 8 * (rows + 1) + static_cast<double>(width_) * (4 * rows + read);
}

double Problem::bytes_most(DType features) const {
  return bytes_least(features) + static_cast<double>(width_ * size_of(features) * (csr_.edges() - touched_));
}

}  // namespace braid::sparse
