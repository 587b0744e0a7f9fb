// One rounding forward; backward sums of up to a thousand rows: 2e-6 of the root mean square. BF16 outputs 1/64.
#include "kernels/bias/bias.h"

#include "core/op_sweep.h"

namespace braid {
namespace {

TEST(Bias, EveryRowAgreesWithTheReference) {
  for (const DType x_type : {DType::f32, DType::bf16}) {
    for (const DType y_type : {DType::f32, DType::bf16}) {
      for (const int64_t width : {1, 5, 16, 100}) {
        TestTensor x(x_type, {7, width}, 1), b(DType::f32, {width}, 2), y(y_type, {7, width}, 3);
        sweep(BiasFwd{.x = x.view(), .b = b.view(), .y = y.mut()}, y_type == DType::bf16 ? 4e-2 : 1e-6);
      }
    }
  }
}

TEST(Bias, GradientsAccumulateOverManyRows) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t rows : {1, 256, 257, 1000}) {
      TestTensor dy(type, {rows, 21}, 1), db(DType::f32, {21}, 2);
      sweep(BiasBwd{.dy = dy.view(), .db = db.mut()}, 4e-6);
    }
  }
}

}  // namespace
}  // namespace braid
