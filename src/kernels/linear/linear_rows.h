// The variants behind the tables of linear.cc.
#pragma once
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_grouped.h"
#include "math/packed.h"
#include "math/product.h"

namespace braid {

// On a GPU; only with BRAID_CUDA.
void linear_fwd_cuda(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace);

// On groups of rows on a GPU, in a pipelined main loop (pipelined_cuda.cuh); only with BRAID_CUDA.
void linear_grouped_fwd_cuda(Ctx& ctx, const LinearGroupedFwd& op, std::span<std::byte> workspace);

// On an engine of products (math/product.h).
const char* linear_engine_refusal(const ProductEngine& e, const LinearFwd& op);
int64_t linear_engine_workspace(const ProductEngine& e, const LinearFwd& op, int threads);
void linear_fwd_engine(const ProductEngine& e, Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace);

// On groups of rows of a weight that has them (math/grouped_rows.h).
const char* linear_groups_supports(DType type, const LinearFwd& op);
int64_t linear_groups_workspace(const LinearFwd& op, int threads);
void linear_fwd_groups(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace);

// With sums in FP64.
const char* linear_wide_sums_supports(const LinearFwd& op);
void linear_fwd_wide_sums(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace);

// On packed operands (math/packed.h), forward and backward.
const char* linear_packed_supports(packed::Class c, const LinearFwd& op);
const char* linear_packed_supports(packed::Class c, const LinearBwdData& op);
const char* linear_packed_supports(packed::Class c, const LinearBwdWeight& op);
int64_t linear_packed_workspace(packed::Class c, const LinearFwd& op, int threads);
int64_t linear_packed_workspace(packed::Class c, const LinearBwdData& op, int threads);
int64_t linear_packed_workspace(packed::Class c, const LinearBwdWeight& op, int threads);
void linear_packed(packed::Class c, Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace);
void linear_packed(packed::Class c, Ctx& ctx, const LinearBwdData& op, std::span<std::byte> workspace);
void linear_packed(packed::Class c, Ctx& ctx, const LinearBwdWeight& op, std::span<std::byte> workspace);

// Calls body(thread, first, n) for tasks of `cols` rows of w, scheduled dynamically, then adds the bias.
void linear_tasks(int threads, const LinearFwd& op, int64_t cols, sys::FunctionRef<void(int, int64_t, int64_t)> body);

}  // namespace braid
