// y = a + b elementwise: the residual connection. Summed in FP32, y in its own dtype; y may be a.
#pragma once
#include "core/op.h"

namespace braid {

struct AddFwd {
  View a{}, b{};  // [T, D] F32 or BF16
  MutView y{};    // [T, D] F32 or BF16
  static constexpr const char* name = "add_fwd";
  static constexpr auto fields() {
    return std::tuple{in("a", &AddFwd::a, "T D"), in("b", &AddFwd::b, "T D"), out("y", &AddFwd::y, "T D")};
  }
  double flops() const { return static_cast<double>(a.count()); }
  static std::span<const Row<AddFwd>> rows();
};

}  // namespace braid
