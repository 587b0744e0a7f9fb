// A vector added to every row: y = x + b, for layers whose product comes before the aggregation, so that it cannot add
// the bias itself. Backward: db += sum of dy over rows, block by block of kBiasRows rows in order, whatever the
// threads; dx is dy.
#pragma once
#include "core/op.h"

namespace braid {

// Rows of one partial sum: it stays in L1, and there are enough of them for threads.
inline constexpr int64_t kBiasRows = 256;

struct BiasFwd {
  View x{};     // [T, D] F32 or BF16
  View b{};     // [D] F32
  MutView y{};  // [T, D] F32 or BF16; may be x
  static constexpr const char* name = "bias_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &BiasFwd::x, "T D"), in("b", &BiasFwd::b, "D"), out("y", &BiasFwd::y, "T D")};
  }
  double flops() const { return static_cast<double>(x.count()); }
  static std::span<const Row<BiasFwd>> rows();
};

struct BiasBwd {
  View dy{};     // [T, D] F32 or BF16
  MutView db{};  // [D] F32, accumulates
  static constexpr const char* name = "bias_bwd";
  static constexpr auto fields() { return std::tuple{in("dy", &BiasBwd::dy, "T D"), inout("db", &BiasBwd::db, "D")}; }
  double flops() const { return static_cast<double>(dy.count()); }
  static std::span<const Row<BiasBwd>> rows();
};

}  // namespace braid
