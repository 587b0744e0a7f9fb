// The variants behind the tables of spmm.cc, and the checks they share.
#pragma once
#include "kernels/spmm/spmm.h"
#include "kernels/spmm/spmm_long_rows.h"
#include "kernels/spmm/spmm_tiles_code.h"

namespace braid {

// Operands that belong to the op and the reduction, and shapes that letters cannot say.
void check_spmm(const SpmmFwd& op);
void check_spmm(const SpmmBwdArg& op);

// Of sr and sell: the list of long rows and the results of their pieces; nothing where there are none, or one thread.
int64_t spmm_pieces_workspace(const SpmmFwd& op, int threads);
void spmm_long_rows(int team, const SpmmFwd& op, const SpmmLongRows& rows, std::span<std::byte> space);
void spmm_fwd_sr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_one_row(const SpmmFwd& op, int64_t row);  // as spmm_fwd_sr does
void spmm_fwd_sell(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_fwd_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_fwd_eb_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
int64_t spmm_tiles_workspace(const SpmmFwd& op, int threads);
void spmm_fwd_tiles(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
// The same with other code for a window: tests run it in software.
void spmm_tiles_with(const spmm_tiles::Code& code, Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
// On a GPU; only with BRAID_CUDA.
void spmm_fwd_cuda_sr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_fwd_cuda_merge(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_fwd_cuda_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_fwd_cuda_eb_pr(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_fwd_cuda_tiles(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
void spmm_fwd_cusparse(Ctx& ctx, const SpmmFwd& op, std::span<std::byte> workspace);
int64_t spmm_bwd_arg_workspace(const SpmmBwdArg& op, int threads);
void spmm_bwd_arg_columns(Ctx& ctx, const SpmmBwdArg& op, std::span<std::byte> workspace);

}  // namespace braid
