// Copies are exact: every row is bit-identical to the reference, and entries that no copy names are unchanged.
#include "kernels/copy_state/copy_state.h"

#include <cstring>

#include "core/op_sweep.h"
#include "core/ref.h"

namespace braid {
namespace {

using Copies = std::vector<CopyState::Copy>;

TEST(CopyState, EveryRowAgreesWithTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Copies& copies :
         {Copies{}, Copies{{0, 5}}, Copies{{3, 1}, {3, 4}, {0, 2}}, Copies{{5, 0}, {4, 3}, {2, 1}}}) {
      TestTensor state(dtype, {6, 77}, 3);
      sweep(CopyState{.state = state.mut(), .copies = copies}, 0, 0);
    }
  }
}

TEST(CopyState, OnlyWhatIsNamedIsWritten) {
  // Entries of more than one piece of a thread, and not a whole number of them.
  TestTensor state(DType::f32, {5, 3, 50, 700}, 9);
  const TestTensor before = state;
  const Copies copies = {{2, 0}, {4, 3}};
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  run(ctx, CopyState{.state = CopyState::entries(state.mut()), .copies = copies});
  const int64_t source[] = {2, 1, 2, 4, 4};
  for (int64_t i = 0; i < 5; ++i) {
    const View got = state.view().slice(0, i, 1), want = before.view().slice(0, source[i], 1);
    EXPECT_EQ(std::memcmp(got.data, want.data, static_cast<size_t>(got.bytes())), 0) << i;
  }
}

// The layout of pages of keys: entries contiguous, their axes in another order.
TEST(CopyState, EntriesMayHaveTheirAxesSwapped) {
  TestTensor state(DType::bf16, {4, 2, 8, 6}, 9);
  MutView swapped = state.mut();
  std::swap(swapped.shape[1], swapped.shape[2]);
  std::swap(swapped.strides[1], swapped.strides[2]);
  const Copies copies = {{2, 0}};
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, CopyState{.state = CopyState::entries(swapped), .copies = copies});
  EXPECT_EQ(to_doubles(swapped.slice(0, 0, 1)), to_doubles(swapped.slice(0, 2, 1)));
  EXPECT_NE(to_doubles(swapped.slice(0, 1, 1)), to_doubles(swapped.slice(0, 2, 1)));
  EXPECT_DEATH(CopyState::entries(swapped.slice(2, 0, 1)), "entries of 48 values, 96 apart");
}

TEST(CopyStateDeath, CopiesThatDependOnTheirOrderAreBugs) {
  TestTensor state(DType::f32, {4, 3}, 1);
  Arena arena;
  Ctx ctx{.arena = arena};
  for (const Copies& copies : {Copies{{0, 1}, {2, 1}}, Copies{{0, 1}, {1, 2}}, Copies{{1, 1}}})
    EXPECT_DEATH(run(ctx, CopyState{.state = state.mut(), .copies = copies}), "is written and used again");
  for (const Copies& copies : {Copies{{0, 4}}, Copies{{-1, 0}}})
    EXPECT_DEATH(run(ctx, CopyState{.state = state.mut(), .copies = copies}), "of 4");
}

}  // namespace
}  // namespace braid
