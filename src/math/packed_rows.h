// The rows of an op that has one for every class of math/packed.h, or for two of them. Calls has what such a row needs,
// the class first:
//   static const char* supports(Class c, const Op& op);
//   static int64_t workspace(Class c, const Op& op, int threads);
//   static void run(Class c, Ctx& ctx, const Op& op, std::span<std::byte> workspace);
#pragma once
#include "core/op.h"
#include "math/packed.h"

namespace braid::packed {

template <class Op, class Calls, Class kClass>
constexpr Row<Op> row(const char* name, const char* numerics) {
  return {.name = name,
          .numerics = numerics,
          .supports = [](const Op& op) { return Calls::supports(kClass, op); },
          .workspace = [](const Op& op, int threads) { return Calls::workspace(kClass, op, threads); },
          .run = [](Ctx& ctx, const Op& op, std::span<std::byte> space) { Calls::run(kClass, ctx, op, space); }};
}

// In the order in which tables try them.
template <class Op, class Calls>
constexpr Row<Op> kTileRow = row<Op, Calls, Class::bf16_tile>("packed_tile", "bf16_tile_chain");
template <class Op, class Calls>
constexpr Row<Op> kDotRow = row<Op, Calls, Class::bf16_dot>("packed_dot", "bf16_dot_chain");
template <class Op, class Calls>
constexpr Row<Op> kBf16Row = row<Op, Calls, Class::bf16>("packed_bf16", "bf16_chain");
template <class Op, class Calls>
constexpr Row<Op> kF32Row = row<Op, Calls, Class::f32>("packed_f32", "f32_chain");

// Of ops that multiply blocks (block_kernel_of) and have register tiles for FP32.
template <class Op, class Calls>
constexpr Row<Op> kBlockTileRow = row<Op, Calls, Class::bf16_tile>("tile", "bf16_tile_chain");
template <class Op, class Calls>
constexpr Row<Op> kBlockDotRow = row<Op, Calls, Class::bf16_dot>("dot", "bf16_dot_chain");

}  // namespace braid::packed
