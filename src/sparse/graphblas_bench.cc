// SuiteSparse:GraphBLAS: matrix times full matrix over the plus-times semiring, one thread. Its result is an object of
// its own; y is not written.
#include "sparse/peers.h"

#if BRAID_GRAPHBLAS
extern "C" {
#include <GraphBLAS.h>
}

#include <algorithm>
#include <memory>
#include <type_traits>

#include "sys/check.h"
#endif

namespace braid::sparse {

#if BRAID_GRAPHBLAS
namespace {

using Handle = std::shared_ptr<std::remove_pointer_t<GrB_Matrix>>;

Handle new_matrix(int64_t rows, int64_t cols) {
  GrB_Matrix m = nullptr;
  CHECK(GrB_Matrix_new(&m, GrB_FP32, static_cast<GrB_Index>(rows), static_cast<GrB_Index>(cols)) == GrB_SUCCESS,
        "GraphBLAS makes no matrix of {} rows", rows);
  return Handle(m, [](GrB_Matrix p) { GrB_Matrix_free(&p); });
}

}  // namespace

void add_graphblas(std::vector<Peer>& peers, const PeerProblem& p) {
  static const bool ready = GrB_init(GrB_NONBLOCKING) == GrB_SUCCESS &&
                            GxB_Global_Option_set(GxB_GLOBAL_NTHREADS, 1) == GrB_SUCCESS &&
                            GxB_Global_Option_set(GxB_FORMAT, GxB_BY_ROW) == GrB_SUCCESS;
  CHECK(ready, "GraphBLAS does not start");
  std::vector<GrB_Index> row, col;
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t e = p.rowptr[i]; e < p.rowptr[i + 1]; ++e) {
      row.push_back(static_cast<GrB_Index>(i));
      col.push_back(static_cast<GrB_Index>(p.col[e]));
    }
  }
  const Handle a = new_matrix(p.rows, p.cols), x = new_matrix(p.cols, p.width), y = new_matrix(p.rows, p.width);
  CHECK(GrB_Matrix_build_FP32(a.get(), row.data(), col.data(), p.value, static_cast<GrB_Index>(p.edges),
                              GrB_PLUS_FP32) == GrB_SUCCESS,
        "GraphBLAS builds no matrix");
  row.clear(), col.clear();
  for (int64_t i = 0; i < p.cols * p.width; ++i) {
    row.push_back(static_cast<GrB_Index>(i / p.width));
    col.push_back(static_cast<GrB_Index>(i % p.width));
  }
  GrB_Matrix_build_FP32(x.get(), row.data(), col.data(), p.x, static_cast<GrB_Index>(row.size()), GrB_PLUS_FP32);
  const auto run = [a, x, y] {
    CHECK(GrB_mxm(y.get(), nullptr, nullptr, GrB_PLUS_TIMES_SEMIRING_FP32, a.get(), x.get(), nullptr) == GrB_SUCCESS &&
              GrB_Matrix_wait(y.get(), GrB_COMPLETE) == GrB_SUCCESS,
          "GraphBLAS multiplies nothing");
  };
  const auto write_y = [y, p] {
    std::fill_n(p.y, p.rows * p.width, 0.0f);  // of rows without edges it has no entries
    GrB_Index entries = 0;
    GrB_Matrix_nvals(&entries, y.get());
    std::vector<GrB_Index> at_row(entries), at_col(entries);
    std::vector<float> values(entries);
    GrB_Matrix_extractTuples_FP32(at_row.data(), at_col.data(), values.data(), &entries, y.get());
    for (size_t i = 0; i < entries; ++i)
      p.y[static_cast<int64_t>(at_row[i]) * p.width + static_cast<int64_t>(at_col[i])] = values[i];
  };
  peers.push_back({"GraphBLAS", run, write_y});
}
#else
void add_graphblas(std::vector<Peer>&, const PeerProblem&) {}
#endif

}  // namespace braid::sparse
