// y = a + scale b elementwise: the residual connection, and the contribution of an adapter. Summed in FP32, y in its
// own dtype; y may be a. Without a: y = scale b.
#pragma once
#include "core/op.h"

namespace braid {

struct AddFwd {
  View a{};     // [T, D] F32 or BF16, or empty: zeros
  View b{};     // [T, D] F32 or BF16
  MutView y{};  // [T, D] F32 or BF16
  float scale = 1;
  static constexpr const char* name = "add_fwd";
  static constexpr auto fields() {
    return std::tuple{maybe("a", &AddFwd::a, "T D"), in("b", &AddFwd::b, "T D"), out("y", &AddFwd::y, "T D")};
  }
  double flops() const { return static_cast<double>(b.count()) * (scale == 1 ? 1 : 2); }
  static std::span<const Row<AddFwd>> rows();
};

}  // namespace braid
