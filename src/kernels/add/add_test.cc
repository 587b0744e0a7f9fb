// One rounding: FP32 1e-7 of the root mean square (times the largest value), BF16 outputs 1/64.
#include "kernels/add/add.h"

#include "core/op_sweep.h"

namespace braid {
namespace {

TEST(Add, EveryRowAgreesWithTheReference) {
  for (const DType a_type : {DType::f32, DType::bf16}) {
    for (const DType b_type : {DType::f32, DType::bf16}) {
      for (const DType y_type : {DType::f32, DType::bf16}) {
        for (const int64_t width : {1, 7, 96, 2688}) {
          TestTensor a(a_type, {3, width}, 1), b(b_type, {3, width}, 2), y(y_type, {3, width}, 3);
          const double bound = y_type == DType::bf16 ? 4e-2 : 1e-6;
          sweep(AddFwd{.a = a.view(), .b = b.view(), .y = y.mut()}, bound);
          sweep(AddFwd{.a = a.view(), .b = b.view(), .y = y.mut(), .scale = -0.7f}, bound);
          sweep(AddFwd{.b = b.view(), .y = y.mut(), .scale = 3}, bound);
        }
      }
    }
  }
}

TEST(Add, TheSumMayReplaceItsFirstTerm) {
  TestTensor a(DType::f32, {2, 33}, 1), b(DType::f32, {2, 33}, 2), before = a;
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, AddFwd{.a = a.view(), .b = b.view(), .y = a.mut()});
  for (int64_t i = 0; i < 66; ++i) {
    EXPECT_EQ(element(a.view(), i),
              static_cast<float>(element(before.view(), i)) + static_cast<float>(element(b.view(), i)));
  }
}

}  // namespace
}  // namespace braid
