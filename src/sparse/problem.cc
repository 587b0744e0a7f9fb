#include "sparse/problem.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/op.h"
#include "core/philox.h"
#include "sparse/race.h"

namespace braid::sparse {
namespace {

Tensor random_tensor(Arena& arena, DType type, const Shape& shape, uint32_t stream) {
  Tensor t(arena, type, shape);
  for (int64_t i = 0; i < shape.count(); i += 4) {
    const auto r = philox({.seed = 1, .stream = stream}, static_cast<uint64_t>(i / 4));
    for (int64_t k = 0; k < std::min<int64_t>(4, shape.count() - i); ++k) {
      const float v = 2 * uniform(r[static_cast<size_t>(k)]) - 1;
      if (type == DType::bf16) {
        t.mut().as<Bf16>()[i + k] = to_bf16(v);
      } else {
        t.mut().as<float>()[i + k] = v;
      }
    }
  }
  return t;
}

double least_of_three(const std::function<void()>& make) {
  const std::vector<double> times = race({make}, 3, 0)[0];
  return *std::min_element(times.begin(), times.end());
}

}  // namespace

Problem::Problem(const graph::Csr& csr, int64_t width, Content content)
    : csr_(csr),
      width_(width),
      arena_(std::make_unique<Arena>()),
      ctx_{.arena = *arena_, .threads = 1},
      x_(random_tensor(*arena_, content.features, {csr.cols, width}, 0)),
      edge_(content.values ? random_tensor(*arena_, DType::f32, {csr.edges(), 1}, 1) : Tensor()),
      y_(*arena_, content.features, {csr.rows, width}) {
  std::vector<uint8_t> seen(static_cast<size_t>(csr.cols), 0);
  for (const int32_t j : csr.col) touched_ += 1 - std::exchange(seen[static_cast<size_t>(j)], uint8_t{1});
}

SpmmFwd Problem::call(const Way& way) const {
  return {.rowptr = csr_.rowptr_view(),
          .col = csr_.col_view(),
          .x = x_.view(),
          .edge = edge_ ? edge_.view() : View(),
          .y = y_.mut(),
          .op = edge_ ? EdgeOp::mul : EdgeOp::copy_x,
          .tuning = way.tuning,
          .pack = way.packed ? &*pack_ : nullptr};
}

std::function<void()> Problem::run(const Way& way) {
  if (!possible(way, width_)) return nullptr;
  if (way.packed && !pack_) pack_ = packed();
  if (way.packed && !pack_) return nullptr;
  return [this, &way] { braid::run(ctx_, call(way)); };
}

std::function<void()> Problem::run(const char* name) {
  const Row<SpmmFwd>& row = row_named<SpmmFwd>(name);
  const bool tiles = row.name == std::string_view("tiles");
  if (tiles && !tiles_) {
    tiles_ = tile_spmm(csr_.rowptr_view(), csr_.col_view(), Device::cpu);
    tile_views_ = tiles_->views();
  }
  SpmmFwd op = call(ways()[0]);
  op.tiles = tiles ? &tile_views_ : nullptr;  // with them every way would run on tiles
  if (refusal(row, op, Device::cpu)) return nullptr;
  return [this, op, &row] { run_row(ctx_, op, row); };
}

std::optional<SpmmPack> Problem::packed() const {
  return pack_spmm(csr_.rowptr_view(), csr_.col_view(), edge_ ? edge_.view() : View());
}

double Problem::pack_seconds() {
  return least_of_three([&] { packed(); });
}

double Problem::tile_seconds() {
  return least_of_three([&] { tile_spmm(csr_.rowptr_view(), csr_.col_view(), Device::cpu); });
}

double Problem::bytes_least(DType features) const {
  const auto edges = static_cast<double>(csr_.edges()), rows = static_cast<double>(csr_.rows),
             read = static_cast<double>(size_of(features) * touched_);
  const double values = edge_ ? 4 : 0, written = static_cast<double>(size_of(y_.view().dtype)) * rows;
  return (4 + values) * edges + 8 * (rows + 1) + static_cast<double>(width_) * (written + read);
}

double Problem::bytes_most(DType features) const {
  return bytes_least(features) + static_cast<double>(width_ * size_of(features) * (csr_.edges() - touched_));
}

}  // namespace braid::sparse
