// librsb's product: recursive blocks, row-major operands, one thread.
#include "sparse/peers.h"

#if BRAID_LIBRSB
#include <rsb.h>

#include <memory>

#include "sys/check.h"
#endif

namespace braid::sparse {

#if BRAID_LIBRSB
void add_librsb(std::vector<Peer>& peers, const PeerProblem& p) {
  static const bool ready = [] {
    const rsb_int_t threads = 1;
    return rsb_lib_init(RSB_NULL_INIT_OPTIONS) == RSB_ERR_NO_ERROR &&
           rsb_lib_set_opt(RSB_IO_WANT_EXECUTING_THREADS, &threads) == RSB_ERR_NO_ERROR;
  }();
  CHECK(ready, "librsb does not start");
  std::vector<rsb_coo_idx_t> row;
  for (int64_t i = 0; i < p.rows; ++i)
    row.insert(row.end(), static_cast<size_t>(p.rowptr[i + 1] - p.rowptr[i]), static_cast<rsb_coo_idx_t>(i));
  rsb_err_t error = RSB_ERR_NO_ERROR;
  const std::shared_ptr<rsb_mtx_t> a(
      rsb_mtx_alloc_from_coo_const(p.value, row.data(), p.col, static_cast<rsb_nnz_idx_t>(p.edges),
                                   RSB_NUMERICAL_TYPE_FLOAT, static_cast<rsb_coo_idx_t>(p.rows),
                                   static_cast<rsb_coo_idx_t>(p.cols), 0, 0, RSB_FLAG_NOFLAGS, &error),
      [](rsb_mtx_t* m) { rsb_mtx_free(m); });
  CHECK(a && error == RSB_ERR_NO_ERROR, "librsb takes no matrix: {}", error);
  peers.push_back({"librsb", [a, p] {
                     const float one = 1, zero = 0;
                     const auto n = static_cast<rsb_coo_idx_t>(p.width);
                     const rsb_err_t failed = p.width == 1
                                                  ? rsb_spmv(RSB_TRANSPOSITION_N, &one, a.get(), p.x, 1, &zero, p.y, 1)
                                                  : rsb_spmm(RSB_TRANSPOSITION_N, &one, a.get(), n,
                                                             RSB_FLAG_WANT_ROW_MAJOR_ORDER, p.x, n, &zero, p.y, n);
                     CHECK(failed == RSB_ERR_NO_ERROR, "librsb multiplies nothing: {}", failed);
                   }});
}
#else
void add_librsb(std::vector<Peer>&, const PeerProblem&) {}
#endif

}  // namespace braid::sparse
