// Eigen's product, compiled for the machine that builds it: its vectors are chosen at compile time.
#include "sparse/peers.h"

#if BRAID_EIGEN
#include <Eigen/Sparse>
#include <memory>
#endif

namespace braid::sparse {

#if BRAID_EIGEN
void add_eigen(std::vector<Peer>& peers, const PeerProblem& p) {
  using Matrix = Eigen::SparseMatrix<float, Eigen::RowMajor>;
  using Dense = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::vector<int> rowptr(p.rowptr, p.rowptr + p.rows + 1);
  auto a = std::make_shared<Matrix>(Eigen::Map<const Matrix>(p.rows, p.cols, p.edges, rowptr.data(), p.col, p.value));
  peers.push_back({"Eigen", [a, p] {
                     if (p.width == 1) {
                       const Eigen::Map<const Eigen::VectorXf> x(p.x, p.cols);
                       Eigen::Map<Eigen::VectorXf>(p.y, p.rows).noalias() = *a * x;
                     } else {
                       const Eigen::Map<const Dense> x(p.x, p.cols, p.width);
                       Eigen::Map<Dense>(p.y, p.rows, p.width).noalias() = *a * x;
                     }
                   }});
}
#else
void add_eigen(std::vector<Peer>&, const PeerProblem&) {}
#endif

}  // namespace braid::sparse
