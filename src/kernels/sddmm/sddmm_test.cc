// Tolerances: dots of up to 160 FP32 products against FP64, 5e-6 of the root mean square.
#include "kernels/sddmm/sddmm.h"

#include "core/op_sweep.h"
#include "sys/parallel.h"

namespace braid {
namespace {

// Five destinations, the first and the last without edges, six sources.
const std::vector<int64_t> kRowptr = {0, 0, 3, 4, 9, 9};
const std::vector<int32_t> kCol = {0, 2, 5, 1, 0, 1, 2, 2, 4};

struct Problem {
  TestTensor u, v, scale, edge, y;
  SddmmFwd op;
  Problem(PairOp f, int64_t width, int64_t values, DType type)
      : u(type, {5, width}, 1),
        v(type, {6, width}, 2, 0.3, 1.5),
        scale(DType::f32, {5}, 3),
        edge(DType::f32, {9, values}, 4, 0.2, 1),
        y(DType::f32, {9, values}, 5),
        op{.rowptr = view_of(kRowptr.data(), {6}), .col = view_of(kCol.data(), {9}), .y = y.mut(), .op = f} {
    if (f != PairOp::copy_v) op.u = u.view();
    if (f != PairOp::copy_u) op.v = v.view();
    if (f == PairOp::square) op.edge = edge.view();
  }
};

TEST(Sddmm, EveryRowAgreesWithTheReference) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t width : {1, 3, 16, 25, 160}) {
      for (const PairOp f : {PairOp::add, PairOp::sub, PairOp::mul, PairOp::div, PairOp::copy_u, PairOp::copy_v})
        sweep(Problem(f, width, width, type).op, 2e-6);
      for (const PairOp f : {PairOp::dot, PairOp::square}) {
        for (const int64_t values : {int64_t{1}, width}) {
          Problem p(f, width, values, type);
          sweep(p.op, 5e-6);
          p.op.scale = -1.5f;
          p.op.u_scale = p.scale.view();
          sweep(p.op, 5e-6);
          p.op.v = {};
          sweep(p.op, 5e-6);
        }
      }
    }
  }
}

// Large enough that threads share rows: a team changes no bit and leaves out no edge.
TEST(Sddmm, LargeProblemsAreSharedByThreads) {
  std::vector<int64_t> rowptr = {0};
  for (int64_t i = 0; i < 900; ++i) rowptr.push_back(rowptr.back() + i % 17);
  std::vector<int32_t> col;
  for (int64_t e = 0; e < rowptr.back(); ++e) col.push_back(static_cast<int32_t>(e * 7 % 100));
  TestTensor u(DType::f32, {900, 48}, 1), v(DType::f32, {100, 48}, 2), dots(DType::f32, {rowptr.back(), 4}, 3),
      sums(DType::f32, {rowptr.back(), 48}, 4);
  SddmmFwd op{.rowptr = view_of(rowptr.data(), {901}),
              .col = view_of(col.data(), {rowptr.back()}),
              .u = u.view(),
              .v = v.view(),
              .y = dots.mut()};
  ASSERT_EQ(sys::team_for(3, op.flops()), 3);
  sweep(op, 5e-6);
  op.op = PairOp::add;
  op.y = sums.mut();
  sweep(op, 2e-6);
}

TEST(Sddmm, HeadsAreDotsOfTheirParts) {
  for (const int64_t part : {1, 5, 16, 40}) sweep(Problem(PairOp::dot, 4 * part, 4, DType::f32).op, 5e-6);
}

}  // namespace
}  // namespace braid
