// The GGUF names of the tensors of released files.
//   https://github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py
#pragma once
#include <string>
#include <string_view>

namespace braid::models {

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight". Empty where GGUF has no such tensor. A stack of
// experts has the name of the stack: "model.layers.3.mlp.experts.up_proj" -> "blk.3.ffn_up_exps.weight".
std::string gguf_name(std::string_view released);

}  // namespace braid::models
