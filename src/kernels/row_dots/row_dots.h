// y[t] = sum over i of a[t, i] b[t, i] w[i], or of a[t, i] b[t, i] without w: what ranks add up that have some channels
// of every row each (nn/hidden_parallel.h). Summed in FP32.
#pragma once
#include "core/op.h"

namespace braid {

struct RowDots {
  View a{};     // [T, D] F32
  View b{};     // [T, D] F32; may be a
  View w{};     // [D] F32; may be empty
  MutView y{};  // [T] F32
  static constexpr const char* name = "row_dots";
  static constexpr auto fields() {
    return std::tuple{in("a", &RowDots::a, "T D"), in("b", &RowDots::b, "T D"), maybe("w", &RowDots::w, "D"),
                      out("y", &RowDots::y, "T")};
  }
  double flops() const { return static_cast<double>(a.count()) * (w ? 3 : 2); }
  static std::span<const Row<RowDots>> rows();
};

}  // namespace braid
