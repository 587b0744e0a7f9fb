#include "models/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "math/ggml_blocks.h"
#include "models/family.h"
#include "sys/error.h"

namespace braid::models {
namespace {

// ---- metadata -------------------------------------------------------------------------------------------------------

struct Key {
  const char* gguf;    // below the architecture
  const char* config;  // of config.json
};
constexpr Key kIntegers[] = {{"embedding_length", "hidden_size"},
                             {"context_length", "max_position_embeddings"},
                             {"attention.head_count", "num_attention_heads"},
                             {"attention.key_length", "head_dim"},
                             {"ssm.time_step_rank", "mamba_num_heads"},
                             {"ssm.group_count", "n_groups"},
                             {"ssm.state_size", "ssm_state_size"},
                             {"ssm.conv_kernel", "conv_kernel"},
                             {"expert_count", "n_routed_experts"},
                             {"expert_used_count", "num_experts_per_tok"},
                             {"expert_feed_forward_length", "moe_intermediate_size"},
                             {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
                             {"expert_shared_count", "n_shared_experts"},
                             {"expert_group_count", "n_group"},
                             {"expert_group_used_count", "topk_group"},
                             {"moe_latent_size", "moe_latent_size"}};

class Metadata {
 public:
  explicit Metadata(const io::Gguf& file)
      : file_(file), architecture_(file.string_of("general.architecture").value_or("nothing")) {
    if (architecture_ != "nemotron_h" && architecture_ != "nemotron_h_moe")
      fail(file.where(), {.what = "a GGUF file of an architecture that is not read",
                          .got = printable(architecture_),
                          .expected = "nemotron_h or nemotron_h_moe"});
  }

  nlohmann::json config() const {
    nlohmann::json config = {{"architectures", {"NemotronHForCausalLM"}}, {"model_type", "nemotron_h"}};
    for (const Key& key : kIntegers) {
      if (const auto value = file_.int_of(name(key.gguf))) config[key.config] = *value;
    }
    config["layer_norm_epsilon"] = file_.number_of(name("attention.layer_norm_rms_epsilon")).value_or(1e-5);
    config["norm_topk_prob"] = file_.bool_of(name("expert_weights_norm")).value_or(true);
    config["routed_scaling_factor"] = file_.number_of(name("expert_weights_scale")).value_or(1.0);
    config["vocab_size"] = vocabulary();
    config["tie_word_embeddings"] = !file_.find("output.weight");
    if (const int64_t heads = file_.need_int(name("ssm.time_step_rank")); heads > 0)
      config["mamba_head_dim"] = file_.need_int(name("ssm.inner_size")) / heads;
    for (const auto& [key, entry] :
         {std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"}, {"tokenizer.ggml.eos_token_id", "eos_token_id"}}) {
      if (const auto id = file_.int_of(key)) config[entry] = *id;
    }
    add_layers(config);
    return config;
  }

 private:
  std::string name(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

  int64_t vocabulary() const {
    if (const auto size = file_.int_of(name("vocab_size"))) return *size;
    const io::GgufTensor* table = file_.find("token_embd.weight");
    if (!table) fail(file_.where(), {.what = "tensor token_embd.weight is missing"});
    return table->shape[0];
  }

  // A layer has attention where it has KV heads, a feed-forward part where that has a width, else a Mamba block.
  void add_layers(nlohmann::json& config) const {
    const int64_t count = file_.need_int(name("block_count")) - file_.int_of(name("nextn_predict_layers")).value_or(0);
    if (count < 1 || count > Ranges::layers.max)
      fail(file_.where(), {.what = name("block_count") + " is out of range", .got = std::to_string(count)});
    const auto layers = static_cast<size_t>(count);
    const auto need = [&](const char* key) {
      const auto list = file_.ints_of(name(key), layers);
      if (!list) fail(file_.where(), {.what = name(key) + " is missing"});
      return *list;
    };
    const std::vector<int64_t> kv_heads = need("attention.head_count_kv"), widths = need("feed_forward_length");
    const char* wide = architecture_ == "nemotron_h" ? "mlp" : "moe";
    nlohmann::json types = nlohmann::json::array();
    for (size_t i = 0; i < layers; ++i) types.push_back(kv_heads[i] > 0 ? "attention" : widths[i] > 0 ? wide : "mamba");
    config["layers_block_type"] = std::move(types);
    config["num_key_value_heads"] = std::max<int64_t>(1, *std::max_element(kv_heads.begin(), kv_heads.end()));
    config["intermediate_size"] = widths;
    config["use_conv_bias"] = std::ranges::any_of(
        file_.tensors(), [](const io::GgufTensor& t) { return t.name.ends_with(".ssm_conv1d.bias"); });
  }

  const io::Gguf& file_;
  std::string architecture_;
};

// ---- tensors --------------------------------------------------------------------------------------------------------

struct Name {
  const char* released;  // after "backbone.layers.N."
  const char* gguf;      // after "blk.N."
};
constexpr Name kNames[] = {{"norm.weight", "attn_norm.weight"},
                           {"mixer.in_proj.weight", "ssm_in.weight"},
                           {"mixer.conv1d.weight", "ssm_conv1d.weight"},
                           {"mixer.conv1d.bias", "ssm_conv1d.bias"},
                           {"mixer.A_log", "ssm_a"},
                           {"mixer.D", "ssm_d"},
                           {"mixer.dt_bias", "ssm_dt.bias"},
                           {"mixer.norm.weight", "ssm_norm.weight"},
                           {"mixer.out_proj.weight", "ssm_out.weight"},
                           {"mixer.q_proj.weight", "attn_q.weight"},
                           {"mixer.k_proj.weight", "attn_k.weight"},
                           {"mixer.v_proj.weight", "attn_v.weight"},
                           {"mixer.o_proj.weight", "attn_output.weight"},
                           {"mixer.up_proj.weight", "ffn_up.weight"},
                           {"mixer.down_proj.weight", "ffn_down.weight"},
                           {"mixer.gate.weight", "ffn_gate_inp.weight"},
                           {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
                           {"mixer.experts.up_proj", "ffn_up_exps.weight"},
                           {"mixer.experts.down_proj", "ffn_down_exps.weight"},
                           {"mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
                           {"mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
                           {"mixer.fc1_latent_proj.weight", "ffn_latent_down.weight"},
                           {"mixer.fc2_latent_proj.weight", "ffn_latent_up.weight"}};
constexpr Name kTopNames[] = {{"backbone.embeddings.weight", "token_embd.weight"},
                              {"backbone.norm_f.weight", "output_norm.weight"},
                              {"lm_head.weight", "output.weight"}};

// Empty where GGUF has no such tensor.
std::string gguf_name(std::string_view released) {
  for (const Name& name : kTopNames) {
    if (released == name.released) return name.gguf;
  }
  constexpr std::string_view kLayer = "backbone.layers.";
  if (!released.starts_with(kLayer)) return {};
  released.remove_prefix(kLayer.size());
  const size_t dot = released.find('.');
  for (const Name& name : kNames) {
    if (released.substr(dot + 1) == name.released) return fmt::format("blk.{}.{}", released.substr(0, dot), name.gguf);
  }
  return {};
}

class GgufSource final : public nn::ParamSource {
 public:
  GgufSource(WeightStore& store, const io::Gguf& file) : store_(store), file_(file) {}

  bool has(const std::string& name) const override { return file_.find(gguf_name(name)) != nullptr; }

  Param first(const nn::ParamRequest& r) override {
    const std::string name = gguf_name(r.name);
    const io::GgufTensor* tensor = file_.find(name);
    if (!tensor) fail(file_.where(), {.what = fmt::format("tensor {} is missing", name.empty() ? r.name : name)});
    if (tensor->shape.count() != r.shape.count() || (is_matrix(r.role) && tensor->shape != r.shape))
      fail(file_.where(), {.what = "tensor " + name + " has the wrong shape",
                           .got = to_string(tensor->shape),
                           .expected = to_string(r.shape)});
    return r.param(is_matrix(r.role) ? matrix(r, *tensor) : vector(r, *tensor));
  }

 private:
  Weight matrix(const nn::ParamRequest& r, const io::GgufTensor& tensor) {
    const Shape shape{r.rows(), r.cols()};
    if (const auto dtype = stored_as(tensor.type->type)) return dense_weight(View(tensor.bytes.data(), *dtype, shape));
    const MutView values = store_.make(DType::f32, shape);
    const std::span<float> all(values.as<float>(), static_cast<size_t>(shape.count()));
    decode_ggml(tensor.type->type, tensor.bytes.data(), all);
    apply_factors(tensor, all);
    return dense_weight(values);
  }

  Weight vector(const nn::ParamRequest& r, const io::GgufTensor& tensor) {
    const MutView values = store_.make(DType::f32, {r.rows(), r.cols()});
    const std::span<float> all(values.as<float>(), static_cast<size_t>(r.shape.count()));
    decode_ggml(tensor.type->type, tensor.bytes.data(), all);
    if (r.role == ParamRole::a_log) {  // files have -exp of it
      for (float& v : all) v = std::log(-v);
    }
    return dense_weight(values);
  }

  // NVFP4 stores one more scale in a tensor of its own: one per matrix, or one per expert of a stack.
  void apply_factors(const io::GgufTensor& tensor, std::span<float> values) const {
    const io::GgufTensor* scale = file_.find(tensor.name.substr(0, tensor.name.rfind('.')) + ".scale");
    if (!scale) return;
    const int64_t count = scale->shape.count(), parts = tensor.shape.rank == 3 ? tensor.shape[0] : 1;
    if (scale->type->type != GgmlType::f32 || (count != 1 && count != parts))
      fail(file_.where(), {.what = "tensor " + scale->name + " does not belong to its matrix",
                           .got = fmt::format("{} {}", scale->type->name, to_string(scale->shape)),
                           .expected = fmt::format("F32 [{}]", parts)});
    std::vector<float> factors(static_cast<size_t>(count));
    decode_ggml(GgmlType::f32, scale->bytes.data(), factors);
    const size_t part = values.size() / factors.size();
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / part];
  }

  static std::optional<DType> stored_as(GgmlType type) {
    if (type == GgmlType::f32) return DType::f32;
    if (type == GgmlType::f16) return DType::f16;
    if (type == GgmlType::bf16) return DType::bf16;
    return std::nullopt;
  }

  WeightStore& store_;
  const io::Gguf& file_;
};

}  // namespace

io::Json gguf_config(const io::Gguf& file) { return io::Json::parse(Metadata(file).config().dump(), file.where()); }

std::unique_ptr<nn::ParamSource> gguf_source(WeightStore& store, const io::Gguf& file) {
  return std::make_unique<GgufSource>(store, file);
}

}  // namespace braid::models
