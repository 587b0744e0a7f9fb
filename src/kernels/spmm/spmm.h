// Generalised sparse-dense product: what every node aggregates from its neighbours. With edges e = (i <- col[e]),
// rowptr[i] <= e < rowptr[i+1], and W values per edge, value w for channels [w D/W, (w+1) D/W):
//   y[i,c] = reduce over e of f(x_scale[j] x[j,c], edge[order[e], w]) + (own + self[i]) x[i,c] + add[i,c]
//   j = col[e];  f: copy_x x, copy_e edge, add x + e, sub x - e, mul x e, div x / e;  reduce: sum, mean, max, min
// Of a block of a larger graph, row self_row + i is source self_source + i, and self[i] belongs to both.
// A row without edges is 0 (sum and mean: plus its own terms), with arg -1. max and min take the first edge of equal
// values and give its position `order[e]`; NaN wins. Accumulated in FP32 in the order of edges; a sum of more than
// kSpmmPiece edges is that of its pieces of so many, in order, which threads may share.
//
// Gradients stay in this family (Huang et al., GE-SpMM, arXiv 2007.03179; Zhang et al., arXiv 2110.09524):
//   sum, mean   dx by SpmmFwd over the transpose, dedge by SddmmFwd (kernels/sddmm)
//   max, min    SpmmBwdArg
#pragma once
#include "core/op.h"

namespace braid {

enum class EdgeOp : uint8_t { copy_x, copy_e, add, sub, mul, div };
enum class Reduce : uint8_t { sum, mean, max, min };

inline bool picks(Reduce reduce) { return reduce == Reduce::max || reduce == Reduce::min; }

inline constexpr int64_t kSpmmPiece = 4096;  // edges

struct SpmmPack;                               // spmm_pack.h
struct SpmmTileViews;                          // spmm_tiles.h
inline constexpr int64_t kSpmmPackWidest = 8;  // channels that a pack serves: wider rows have as many sums in flight

// How a call runs, which a measurement may choose (sparse/plan.h). It changes no bit.
struct SpmmTuning {
  int32_t ahead = -1;        // edges whose rows of x are prefetched; 0: none, -1: by the size of x
  bool past_caches = false;  // y is written past the caches: it pays where y exceeds them
  int64_t longest = -1;      // edges of the longest row, or more; -1: unknown. A GPU then looks for rows to cut
};

struct SpmmFwd {
  View rowptr{};  // [R + 1] I64
  View col{};     // [E] I32
  View order{};   // [E] I32, where the values of an edge are; empty: in the order of `col`
  // [R] I32, the rows by falling degree (spmm_pack.h), or empty. Rows that share a warp of a GPU are then about equally
  // long; it changes no bit.
  View by_degree{};
  View x{};        // [S, D] F32 or BF16, the sources; empty for copy_e
  View x_scale{};  // [S] F32 or empty: ones
  View edge{};     // [E, W] F32, D a multiple of W; empty for copy_x
  View self{};     // [N] F32 or empty: of rows that are sources too, in a whole graph all; with sum only
  View add{};      // [R, D] F32 or BF16, or empty; only added to rows with edges. With max and min only
  MutView y{};     // [R, D] F32 or BF16
  MutView arg{};   // [R, D] I32, for max and min; may be empty
  float own = 0;   // as self, the same for all of a whole graph
  int64_t self_row = 0, self_source = 0;
  EdgeOp op = EdgeOp::copy_x;
  Reduce reduce = Reduce::sum;
  SpmmTuning tuning{};
  const SpmmPack* pack = nullptr;        // of this graph, if there is one: see spmm_pack.h
  const SpmmTileViews* tiles = nullptr;  // as `pack`, where `col` is: see spmm_tiles.h
  static constexpr const char* name = "spmm_fwd";
  static constexpr auto fields() {
    return std::tuple{in("rowptr", &SpmmFwd::rowptr, "R1"),     in("col", &SpmmFwd::col, "E"),
                      maybe("order", &SpmmFwd::order, "E"),     maybe("by_degree", &SpmmFwd::by_degree, "R"),
                      maybe("x", &SpmmFwd::x, "S D"),           maybe("x_scale", &SpmmFwd::x_scale, "S"),
                      maybe("edge", &SpmmFwd::edge, "E W"),     maybe("self", &SpmmFwd::self, "N"),
                      maybe("add", &SpmmFwd::add, "R D"),       out("y", &SpmmFwd::y, "R D"),
                      optional_out("arg", &SpmmFwd::arg, "R D")};
  }
  double flops() const { return 2.0 * static_cast<double>(col.count()) * static_cast<double>(y.dim(1)); }
  static std::span<const Row<SpmmFwd>> rows();
};

// Of max and min: every element of dy goes to the edge that `arg` of the forward call names (without `order`).
struct SpmmBwdArg {
  View rowptr{};    // [R + 1] I64
  View col{};       // [E] I32
  View x{};         // [S, D] F32 or BF16; for mul and div with dedge
  View edge{};      // [E, W] F32; for mul and div, and with dedge
  View arg{};       // [R, D] I32
  View dy{};        // [R, D] F32 or BF16
  MutView dx{};     // [S, D] F32; may be empty
  MutView dedge{};  // [E, W] F32; may be empty
  MutView dadd{};   // [R, D] F32; may be empty
  EdgeOp op = EdgeOp::copy_x;
  static constexpr const char* name = "spmm_bwd_arg";
  static constexpr auto fields() {
    return std::tuple{in("rowptr", &SpmmBwdArg::rowptr, "R1"),
                      in("col", &SpmmBwdArg::col, "E"),
                      maybe("x", &SpmmBwdArg::x, "S D"),
                      maybe("edge", &SpmmBwdArg::edge, "E W"),
                      in("arg", &SpmmBwdArg::arg, "R D"),
                      in("dy", &SpmmBwdArg::dy, "R D"),
                      optional_out("dx", &SpmmBwdArg::dx, "S D"),
                      optional_out("dedge", &SpmmBwdArg::dedge, "E W"),
                      optional_out("dadd", &SpmmBwdArg::dadd, "R D")};
  }
  double flops() const { return 2.0 * static_cast<double>(dy.count()); }
  static std::span<const Row<SpmmBwdArg>> rows();
};

}  // namespace braid
