// Matrices of which tensor-parallel ranks hold parts, for Muon, which makes whole ones orthogonal. All ranks have parts
// of the same matrices and name them in the same order. Of P ranks, a matrix of n elements of which each holds 1 / P:
//   gather     goes to one rank, which sends the parts back: with P matrices at a time a rank computes one of them and
//              sends 2 (P - 1) / P n elements for all
//   duplicate  goes to all, which compute the same: (P - 1) / P n elements for each
// No bit differs between the two. Of keys and values that several ranks read, each of these sends its copy.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.h"
#include "core/ctx.h"
#include "core/param.h"
#include "core/tensor.h"
#include "models/master_weights.h"

namespace braid::train {

class DividedMatrices {
 public:
  struct Matrix {
    int64_t rows = 0, cols = 0;  // of the whole
    bool by_cols = false;
    std::vector<Range> held{};  // of every rank: rows, or columns; those of several ranks may be the same

    int64_t count(int rank) const { return held[static_cast<size_t>(rank)].count * (by_cols ? rows : cols); }
  };

  // `ranks` outlives this.
  DividedMatrices(comm::Group& ranks, bool duplicate) : ranks_(ranks), duplicate_(duplicate) {}
  // The number of the matrix that `p` is a part of, from 0; -1: this rank has all of it. All ranks call it.
  int64_t add(const models::MasterTensor& tensor, const Param& p);
  // Of a whole matrix, of which this rank has `held`. All ranks call it.
  int64_t add(Matrix whole, const Range& held);
  const Matrix& operator[](int64_t number) const { return matrices_[static_cast<size_t>(number)]; }

  int64_t at_once() const { return duplicate_ ? 1 : ranks_.size(); }
  // This rank's contiguous F32 parts of at most at_once() matrices become those of the orthogonal ones
  // (kernels/muon/muon.h, Orthogonalize). All ranks call it.
  void orthogonalize(Ctx& ctx, std::span<const int64_t> numbers, std::span<const MutView> parts);

 private:
  void duplicate(Ctx& ctx, const Matrix& matrix, const MutView& part);
  Tensor whole_of(Ctx& ctx, const Matrix& matrix, const Tensor& parts) const;  // parts: of all ranks, in order

  comm::Group& ranks_;
  bool duplicate_;
  std::vector<Matrix> matrices_;
};

}  // namespace braid::train
