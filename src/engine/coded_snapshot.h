// A recurrent state in INT8, as a PrefixCache may keep it: block after block its convolution columns, BF16, then its
// SSM state (kernels/copy_state/coded_state.h). A sequence that runs always has its slot in F32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/ctx.h"
#include "nn/state.h"

namespace braid::engine {

// Of a state whose blocks are F32 and have nothing of --exact.
int64_t coded_snapshot_bytes(const nn::StateView& state);
void encode_snapshot(Ctx& ctx, const nn::StateView& state, int64_t slot, std::span<std::byte> coded);
void decode_snapshot(Ctx& ctx, std::span<const std::byte> coded, const nn::StateView& state, int64_t slot);

}  // namespace braid::engine
