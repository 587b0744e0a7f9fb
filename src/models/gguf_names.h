// The GGUF names of the tensors of released files.
//   https://github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace braid::models {

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight". Empty where GGUF has no such tensor. A stack of
// experts has the name of the stack: "model.layers.3.mlp.experts.up_proj" -> "blk.3.ffn_up_exps.weight". Both layers of
// the prediction block are one block after the model's `layers`: "mtp.layers.1.norm.weight" of 52 layers ->
// "blk.52.post_attention_norm.weight".
std::string gguf_name(std::string_view released, int64_t layers);

// Whether a tensor of that name is of one of the model's `layers` and no number beside another tensor (`.scale`) or of
// RoPE, which are read with it or as keys.
bool gguf_needs_place(std::string_view name, int64_t layers);

}  // namespace braid::models
