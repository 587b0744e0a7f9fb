// A product to measure: a graph, values of its edges and features in [-1, 1), and every way to run it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/ctx.h"
#include "core/tensor.h"
#include "graph/csr.h"
#include "kernels/spmm/spmm_pack.h"
#include "kernels/spmm/spmm_tiles.h"
#include "sparse/ways.h"

namespace braid::sparse {

struct Content {
  DType features = DType::f32;  // of x and y: F32 or BF16
  bool values = true;           // of edges; else their sources are added up
};

class Problem {
 public:
  // The graph outlives this. One thread.
  Problem(const graph::Csr& csr, int64_t width, Content content = {});
  // Null where the way cannot run this.
  std::function<void()> run(const Way& way);
  // A row of the op's table that is not a way, since it sums in another order; null where it refuses.
  std::function<void()> run(const char* row);
  double pack_seconds();  // to make the pack, CPU time of the least of three
  double tile_seconds();  // to make tiles, as above

  double flops() const { return 2 * static_cast<double>(csr_.edges()) * static_cast<double>(width_); }
  // Bytes that a product moves if it reads each source once, and if it reads one per edge: CSR and the result are in
  // both.
  double bytes_least(DType features = DType::f32) const;
  double bytes_most(DType features = DType::f32) const;

  const graph::Csr& csr() const { return csr_; }
  int64_t width() const { return width_; }
  const Tensor& x() const { return x_; }
  const Tensor& edge() const { return edge_; }
  const Tensor& y() const { return y_; }

 private:
  SpmmFwd call(const Way& way) const;
  std::optional<SpmmPack> packed() const;

  const graph::Csr& csr_;
  int64_t width_ = 0, touched_ = 0;  // touched: sources with edges
  std::unique_ptr<Arena> arena_;
  Ctx ctx_;
  Tensor x_, edge_, y_;
  std::optional<SpmmPack> pack_;
  std::optional<SpmmTiles> tiles_;
  SpmmTileViews tile_views_;
};

}  // namespace braid::sparse
