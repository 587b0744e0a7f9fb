// The state that a sequence carries between passes (docs/internals/layers.md, State). A block declares what it needs
// (StateShape); the engine owns the memory and hands views in (StateView). A recurrent state is an entry of tensors
// over slots; keys and values are in pages listed by a row of the page table. The two are independent: a sequence names
// its slot and its row, and may change either (core/seq_map.h).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "core/view.h"

namespace braid::nn {

struct StateShape {
  // Mamba-2: convolution columns [width-1, channels], FP32, and SSM state [heads, head_dim, state]
  int64_t conv_columns = 0, conv_channels = 0;
  int64_t heads = 0, head_dim = 0, state = 0;
  int64_t chunk = 0;  // of the scan; --exact keeps the inputs of an unfinished chunk
  // Attention: keys and values, [kv_heads, kv_dim] per token
  int64_t kv_heads = 0, kv_dim = 0;
  float k_factor = 1, v_factor = 1;  // FP8 keys and values are stored divided by these

  // I8 codes of the SSM state have an FP32 scale for each head and channel.
  int64_t fixed_bytes(DType ssm) const {
    const int64_t scales = ssm == DType::i8 ? heads * head_dim * size_of(DType::f32) : 0;
    return 4 * conv_columns * conv_channels + heads * head_dim * state * size_of(ssm) + scales;
  }
  // Additionally with --exact: the state at the last chunk boundary, FP32, and the inputs since, in `inputs`.
  int64_t exact_bytes(DType inputs) const {
    return 4 * heads * head_dim * state + (heads > 0 ? size_of(inputs) * chunk * (conv_channels + heads) : 0);
  }
  // I8 codes have an FP32 scale for each head's key and value.
  int64_t kv_bytes_per_token(DType t) const {
    return 2 * kv_heads * (kv_dim * size_of(t) + (t == DType::i8 ? size_of(DType::f32) : 0));
  }
};

// The memory of one block for all slots and pages; fields that its shape does not request are empty.
struct BlockState {
  MutView conv{};                  // [S, W-1, C] F32, inputs before convolution and SiLU, oldest first
  MutView ssm{};                   // [S, H, P, N] F32, BF16, F16 or I8, after the last token
  MutView ssm_scales{};            // [S, H, P] F32, of I8
  MutView k_pages{}, v_pages{};    // [pages, page, G, P] F32, BF16, F8_E4M3 or I8; a page is stored head by head
  MutView k_scales{}, v_scales{};  // [pages, page, G] F32, of I8 pages
  // With --exact: the state at the last chunk boundary, and what the scan has read since.
  MutView chunk_ssm{};     // [S, H, P, N] F32
  MutView chunk_inputs{};  // [S, Q, C + H], as the scan reads them: x, B, C after convolution, then dt

  std::array<MutView, 5> by_slot() const { return {conv, ssm, ssm_scales, chunk_ssm, chunk_inputs}; }
  std::array<MutView, 4> by_page() const { return {k_pages, v_pages, k_scales, v_scales}; }
};

struct StateView {
  std::vector<BlockState> blocks{};  // by Block::state_index
  View page_table{};                 // [rows, max_pages] I32, by Seq::table; the same for every attention block
};

}  // namespace braid::nn
