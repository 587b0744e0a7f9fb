#include "models/blocks.h"

#include <utility>

namespace braid::models {
namespace {

Param rows_of(const Param& whole, const char* part, int64_t begin, int64_t rows) {
  Param p;
  p.name = whole.name + "." + part;
  p.value = whole.value.rows == 1 ? dense_weight(View(whole.value.codes.slice(1, begin, rows)))
                                  : whole.value.rows_of(begin, rows);
  if (whole.grad) p.grad = whole.grad.slice(whole.value.rows == 1 ? 1 : 0, begin, rows);
  return p;
}

// GPT-2's c_attn holds q, k and v one after the other; its matrices are stored [inputs, outputs].
nn::AttentionParams load_gpt2_attention(nn::ParamSource& source, const std::string& prefix,
                                        const nn::AttentionSpec& spec) {
  const int64_t h = spec.hidden;
  const Param w = source.transposed(prefix + "c_attn.weight", 3 * h, h, "n_embd"),
              b = source.vector(prefix + "c_attn.bias", {3 * h}, "n_embd");
  nn::AttentionParams p;
  p.q = rows_of(w, "q", 0, h), p.k = rows_of(w, "k", h, h), p.v = rows_of(w, "v", 2 * h, h);
  p.q_bias = rows_of(b, "q", 0, h), p.k_bias = rows_of(b, "k", h, h), p.v_bias = rows_of(b, "v", 2 * h, h);
  p.o = source.transposed(prefix + "c_proj.weight", h, h, "n_embd");
  p.o_bias = source.vector(prefix + "c_proj.bias", {h}, "n_embd");
  return p;
}

nn::MlpParams load_gpt2_mlp(nn::ParamSource& source, const std::string& prefix, const nn::MlpSpec& spec) {
  nn::MlpParams p;
  p.up = source.transposed(prefix + "c_fc.weight", spec.width, spec.hidden, "n_inner, n_embd");
  p.up_bias = source.vector(prefix + "c_fc.bias", {spec.width}, "n_inner");
  p.down = source.transposed(prefix + "c_proj.weight", spec.hidden, spec.width, "n_embd, n_inner");
  p.down_bias = source.vector(prefix + "c_proj.bias", {spec.hidden}, "n_embd");
  return p;
}

struct Builder {
  const PartSpec& part;
  Storage storage;
  nn::ParamSource& source;
  const std::shared_ptr<nn::RopeTable>& rope;

  std::unique_ptr<nn::Block> operator()(const nn::Mamba2Spec& spec) const {
    return std::make_unique<nn::Mamba2>(spec, nn::load_mamba2(source, part.prefix, spec));
  }
  std::unique_ptr<nn::Block> operator()(const nn::AttentionSpec& spec) const {
    auto params = storage == Storage::gpt2 ? load_gpt2_attention(source, part.prefix, spec)
                                           : nn::load_attention(source, part.prefix, spec);
    return std::make_unique<nn::Attention>(spec, std::move(params), rope);
  }
  std::unique_ptr<nn::Block> operator()(const nn::MlpSpec& spec) const {
    auto params = storage == Storage::gpt2 ? load_gpt2_mlp(source, part.prefix, spec)
                                           : nn::load_mlp(source, part.prefix, spec, "intermediate_size, hidden_size");
    return std::make_unique<nn::Mlp>(spec, std::move(params));
  }
  std::unique_ptr<nn::Block> operator()(const nn::MoeSpec& spec) const {
    return std::make_unique<nn::Moe>(spec, nn::load_moe(source, part.prefix, spec));
  }
  std::unique_ptr<nn::Block> operator()(const LinearSpec& spec) const {
    return std::make_unique<nn::LinearBlock>(
        source.matrix(part.prefix + spec.leaf, spec.hidden, spec.hidden, "hidden_size"));
  }
};

}  // namespace

std::unique_ptr<nn::Block> build_block(const PartSpec& part, Storage storage, nn::ParamSource& source,
                                       const std::shared_ptr<nn::RopeTable>& rope) {
  return std::visit(Builder{part, storage, source, rope}, part.block);
}

}  // namespace braid::models
