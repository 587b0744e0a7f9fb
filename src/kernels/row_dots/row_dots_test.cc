// FP32 sums of at most 2688 products against FP64: 1e-5 of the root mean square.
#include "kernels/row_dots/row_dots.h"

#include "core/op_sweep.h"

namespace braid {
namespace {

TEST(RowDots, EveryRowAgreesWithTheReference) {
  for (const int64_t width : {1, 7, 48, 2688}) {
    TestTensor a(DType::f32, {5, width}, 1), b(DType::f32, {5, width}, 2), w(DType::f32, {width}, 3),
        y(DType::f32, {5}, 4);
    sweep(RowDots{.a = a.view(), .b = b.view(), .w = w.view(), .y = y.mut()}, 1e-5);
    sweep(RowDots{.a = a.view(), .b = a.view(), .y = y.mut()}, 1e-5);
  }
}

TEST(RowDots, RowsMayBeColumnsOfWiderOnes) {
  TestTensor wide(DType::f32, {3, 40}, 1), y(DType::f32, {3}, 2);
  sweep(RowDots{.a = wide.view().slice(1, 4, 15), .b = wide.view().slice(1, 21, 15), .y = y.mut()}, 1e-5);
}

}  // namespace
}  // namespace braid
