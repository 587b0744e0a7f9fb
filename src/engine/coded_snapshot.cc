#include "engine/coded_snapshot.h"

#include "core/dtype.h"
#include "kernels/copy_state/coded_state.h"
#include "sys/check.h"

namespace braid::engine {
namespace {

int64_t conv_values(const nn::BlockState& block) { return block.conv.dim(1) * block.conv.dim(2); }
int64_t ssm_bytes(const nn::BlockState& block) {
  return coded_state_bytes(block.ssm.dim(1), block.ssm.dim(2), block.ssm.dim(3));
}
MutView ssm_of(const nn::BlockState& block, int64_t slot) {
  return {block.ssm.slice(0, slot, 1).data, DType::f32, {block.ssm.dim(1), block.ssm.dim(2), block.ssm.dim(3)}};
}
float* conv_of(const nn::BlockState& block, int64_t slot) { return block.conv.as<float>() + slot * conv_values(block); }

}  // namespace

int64_t coded_snapshot_bytes(const nn::StateView& state) {
  int64_t sum = 0;
  for (const nn::BlockState& block : state.blocks) {
    if (block.ssm) sum += conv_values(block) * size_of(DType::bf16) + ssm_bytes(block);
  }
  return sum;
}

void encode_snapshot(Ctx& ctx, const nn::StateView& state, int64_t slot, std::span<std::byte> coded) {
  for (const nn::BlockState& block : state.blocks) {
    if (!block.ssm) continue;
    auto* conv = reinterpret_cast<Bf16*>(coded.data());
    const float* from = conv_of(block, slot);
    for (int64_t i = 0; i < conv_values(block); ++i) conv[i] = to_bf16(from[i]);
    coded = coded.subspan(static_cast<size_t>(conv_values(block) * size_of(DType::bf16)));
    encode_state(ctx.threads, ssm_of(block, slot), coded.first(static_cast<size_t>(ssm_bytes(block))));
    coded = coded.subspan(static_cast<size_t>(ssm_bytes(block)));
  }
  CHECK(coded.empty(), "{} bytes are left", coded.size());
}

void decode_snapshot(Ctx& ctx, std::span<const std::byte> coded, const nn::StateView& state, int64_t slot) {
  for (const nn::BlockState& block : state.blocks) {
    if (!block.ssm) continue;
    const auto* conv = reinterpret_cast<const Bf16*>(coded.data());
    float* to = conv_of(block, slot);
    for (int64_t i = 0; i < conv_values(block); ++i) to[i] = to_float(conv[i]);
    coded = coded.subspan(static_cast<size_t>(conv_values(block) * size_of(DType::bf16)));
    decode_state(ctx.threads, coded.first(static_cast<size_t>(ssm_bytes(block))), ssm_of(block, slot));
    coded = coded.subspan(static_cast<size_t>(ssm_bytes(block)));
  }
  CHECK(coded.empty(), "{} bytes are left", coded.size());
}

}  // namespace braid::engine
