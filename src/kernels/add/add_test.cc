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
          sweep(AddFwd{.a = a.view(), .b = b.view(), .y = y.mut()}, y_type == DType::bf16 ? 4e-2 : 1e-6);
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

// y = x + (x + b): x receives the gradient twice, b once, and neither through the other's memory.
TEST(Add, BothTermsReceiveTheGradient) {
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .tape = &tape};
  const Tensor x(arena, DType::f32, {2, 3}), b(arena, DType::f32, {2, 3}), dy(arena, DType::f32, {2, 3});
  fill(x.mut(), 1);
  fill(b.mut(), 2);
  for (int64_t i = 0; i < 6; ++i) set_element(dy.mut(), i, static_cast<double>(i));
  const Tensor y = add(ctx, x, add(ctx, x, b));
  tape.add_grad(y, dy);
  tape.backward(ctx);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(element(y.view(), i), 4);
    EXPECT_EQ(element(tape.grad(x).view(), i), 2 * static_cast<double>(i));
    EXPECT_EQ(element(tape.grad(b).view(), i), static_cast<double>(i));
  }
}

}  // namespace
}  // namespace braid
