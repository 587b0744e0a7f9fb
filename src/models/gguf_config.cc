// The metadata of a GGUF file as the config.json that it was made from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "codec/ggml_blocks.h"
#include "models/family.h"
#include "models/gguf.h"
#include "models/gguf_metadata.h"
#include "sys/error.h"

namespace braid::models {
namespace {

struct Key {
  const char* gguf;    // below the architecture
  const char* config;  // of config.json
};
constexpr Key kNemotronHKeys[] = {{"embedding_length", "hidden_size"},
                                  {"context_length", "max_position_embeddings"},
                                  {"attention.head_count", "num_attention_heads"},
                                  {"attention.key_length", "head_dim"},
                                  {"ssm.time_step_rank", "mamba_num_heads"},
                                  {"ssm.group_count", "n_groups"},
                                  {"ssm.state_size", "ssm_state_size"},
                                  {"ssm.conv_kernel", "conv_kernel"},
                                  {"expert_count", "n_routed_experts"},
                                  {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
                                  {"expert_shared_count", "n_shared_experts"},
                                  {"expert_group_count", "n_group"},
                                  {"expert_group_used_count", "topk_group"},
                                  {"moe_latent_size", "moe_latent_size"}};
constexpr Key kTransformerKeys[] = {{"embedding_length", "hidden_size"},
                                    {"context_length", "max_position_embeddings"},
                                    {"block_count", "num_hidden_layers"},
                                    {"attention.key_length", "head_dim"},
                                    {"expert_count", "num_experts"},
                                    {"expert_used_count", "num_experts_per_tok"},
                                    {"expert_feed_forward_length", "moe_intermediate_size"}};

// Special tokens that end an answer, in all spellings.
constexpr std::string_view kEnds[] = {"</s>",       "<|im_end|>",    "<|endoftext|>",
                                      "<|eot_id|>", "<|eom_id|>",    "<|end_of_text|>",
                                      "<|end|>",    "<end_of_turn>", "<|return|>"};

class MetadataReader {
 public:
  explicit MetadataReader(const io::Gguf& file) : file_(file), architecture_(gguf_architecture(file)) {}

  nlohmann::json config() const {
    need_usual_attention();
    nlohmann::json config = architecture_.starts_with("nemotron_h") ? nemotron_h()
                            : architecture_ == "deci"               ? deci()
                                                                    : transformer();
    config["vocab_size"] = vocabulary();
    config["tie_word_embeddings"] = !file_.find("output.weight");
    if (const auto id = token("bos")) config["bos_token_id"] = *id;
    if (const auto ends = end_ids(); !ends.empty()) config["eos_token_id"] = ends;
    return config;
  }

 private:
  std::string name(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

  // What llama.cpp would compute differently, or no supported model has.
  void need_usual_attention() const {
    if (const auto window = file_.int_of(name("attention.sliding_window")); window.value_or(0) != 0)
      fail(file_.where(), {.what = name("attention.sliding_window") + " is not supported",
                           .got = std::to_string(*window),
                           .expected = "0 or none"});
    if (const auto scale = file_.number_of(name("attention.scale")); scale.value_or(0) != 0)
      fail(file_.where(), {.what = name("attention.scale") + " is not supported",
                           .got = fmt::format("{}", *scale),
                           .expected = "0 or none"});
  }

  void copy(std::span<const Key> keys, nlohmann::json& config) const {
    for (const Key& key : keys) {
      if (const auto value = file_.int_of(name(key.gguf))) config[key.config] = *value;
    }
  }

  int64_t vocabulary() const {
    if (const auto size = file_.int_of(name("vocab_size"))) return *size;
    const io::GgufTensor* table = file_.find("token_embd.weight");
    if (!table) fail(file_.where(), {.what = "tensor token_embd.weight is missing"});
    return table->shape[0];
  }

  std::optional<int64_t> token(std::string_view which) const {
    const auto id = file_.int_of(fmt::format("tokenizer.ggml.{}_token_id", which));
    return id == UINT32_MAX ? std::nullopt : id;  // some files' value for none
  }

  // The ids for generation_config.json. Files name one token, or a few; the others are found by their spelling.
  std::vector<int64_t> end_ids() const {
    std::vector<int64_t> ids;
    const auto add = [&](int64_t id) {
      if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
    };
    for (const char* which : {"eos", "eot", "eom"}) {
      if (const auto id = token(which)) add(*id);
    }
    const std::vector<std::string>* tokens = file_.strings_of("tokenizer.ggml.tokens");
    if (!tokens) return ids;
    constexpr int64_t kControl = 3;
    const auto kinds = file_.ints_of("tokenizer.ggml.token_type", tokens->size()).value_or(std::vector<int64_t>());
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] == kControl && std::ranges::find(kEnds, (*tokens)[i]) != std::end(kEnds))
        add(static_cast<int64_t>(i));
    }
    return ids;
  }

  size_t layers() const { return static_cast<size_t>(gguf_layers(file_)); }

  // One number for every block, those that predict included.
  std::vector<int64_t> by_block(const char* key) const {
    (void)layers();  // checks how many there are
    auto list = file_.ints_of(name(key), static_cast<size_t>(file_.need_int(name("block_count"))));
    if (!list) fail(file_.where(), {.what = name(key) + " is missing"});
    return std::move(*list);
  }
  std::vector<int64_t> by_layer(const char* key) const {
    std::vector<int64_t> list = by_block(key);
    list.resize(layers());
    return list;
  }

  double eps() const { return file_.number_of(name("attention.layer_norm_rms_epsilon")).value_or(1e-5); }

  bool any_tensor(std::string_view ending) const {
    return std::ranges::any_of(file_.tensors(), [&](const io::GgufTensor& t) { return t.name.ends_with(ending); });
  }

  nlohmann::json nemotron_h() const {
    nlohmann::json config = {{"architectures", {"NemotronHForCausalLM"}}, {"model_type", "nemotron_h"}};
    copy(kNemotronHKeys, config);
    config["layer_norm_epsilon"] = eps();
    config["norm_topk_prob"] = file_.bool_of(name("expert_weights_norm")).value_or(true);
    config["routed_scaling_factor"] = file_.number_of(name("expert_weights_scale")).value_or(1.0);
    if (const int64_t heads = file_.need_int(name("ssm.time_step_rank")); heads > 0)
      config["mamba_head_dim"] = file_.need_int(name("ssm.inner_size")) / heads;
    // A layer has attention where it has KV heads, a feed-forward part where that has a width, else a Mamba block.
    const std::vector<int64_t> kv_heads = by_layer("attention.head_count_kv"), widths = by_layer("feed_forward_length");
    const char* wide = architecture_ == "nemotron_h" ? "mlp" : "moe";
    nlohmann::json types = nlohmann::json::array();
    for (size_t i = 0; i < widths.size(); ++i)
      types.push_back(kv_heads[i] > 0 ? "attention" : widths[i] > 0 ? wide : "mamba");
    if (architecture_ == "nemotron_h_moe") add_experts(types, config);
    config["layers_block_type"] = std::move(types);
    config["num_key_value_heads"] = std::max<int64_t>(1, *std::ranges::max_element(kv_heads));
    config["intermediate_size"] = widths;
    config["use_conv_bias"] = any_tensor(".ssm_conv1d.bias");
    if (gguf_predicts(file_)) add_prediction(config);
    return config;
  }

  // Its numbers are those of the block after the layers, the first that predicts.
  void add_prediction(nlohmann::json& config) const {
    const auto own = [&](const char* key) { return by_block(key)[layers()]; };
    config["num_nextn_predict_layers"] = 1;
    config["mtp_block_configs"] = {
        {{"block_type", "attention"}, {"num_key_value_heads", own("attention.head_count_kv")}},
        {{"block_type", "moe"},
         {"num_experts_per_tok", own("expert_used_count")},
         {"moe_intermediate_size", own("expert_feed_forward_length")}}};
    for (const auto& block : config["mtp_block_configs"]) {
      for (const auto& entry : block.items()) {
        if (entry.key() != "block_type" && config.value(entry.key(), nlohmann::json()) != entry.value()) return;
      }
    }
    config.erase("mtp_block_configs");
    config["mtp_layers_block_type"] = {"attention", "moe"};
  }

  // Width and number of a token's experts, which Puzzle chooses layer by layer.
  void add_experts(const nlohmann::json& types, nlohmann::json& config) const {
    const std::vector<int64_t> used = by_layer("expert_used_count"), widths = by_layer("expert_feed_forward_length");
    auto blocks = nlohmann::json::array();
    bool alike = true;
    for (size_t i = 0; i < types.size(); ++i) {
      nlohmann::json block = {{"block_type", types[i]}};
      if (types[i] == "moe") {
        block["num_experts_per_tok"] = used[i];
        block["moe_intermediate_size"] = widths[i];
        alike = alike && config.value("num_experts_per_tok", used[i]) == used[i] &&
                config.value("moe_intermediate_size", widths[i]) == widths[i];
        config["num_experts_per_tok"] = used[i];
        config["moe_intermediate_size"] = widths[i];
      }
      blocks.push_back(std::move(block));
    }
    if (!alike) config["block_configs"] = std::move(blocks);
  }

  // Llama, Qwen3 and Qwen3-MoE.
  nlohmann::json transformer() const {
    const bool sparse = architecture_ == "qwen3moe", llama = architecture_ == "llama";
    nlohmann::json config = {{"architectures",
                              {llama    ? "LlamaForCausalLM"
                               : sparse ? "Qwen3MoeForCausalLM"
                                        : "Qwen3ForCausalLM"}},
                             {"model_type", llama    ? "llama"
                                            : sparse ? "qwen3_moe"
                                                     : "qwen3"}};
    if (!sparse && file_.int_of(name("expert_count")).value_or(0) > 0)
      fail(file_.where(),
           {.what = "architecture " + architecture_ + " with experts is not supported", .expected = "qwen3moe"});
    copy(kTransformerKeys, config);
    const auto heads = file_.need_int(name("attention.head_count"));
    config["num_attention_heads"] = heads;
    config["num_key_value_heads"] = file_.int_of(name("attention.head_count_kv")).value_or(heads);
    config["intermediate_size"] = file_.need_int(name("feed_forward_length"));
    config["norm_topk_prob"] = true;
    if (sparse) {
      auto dense = nlohmann::json::array();
      for (size_t i = 0; i < layers(); ++i) {
        if (!file_.find(fmt::format("blk.{}.ffn_gate_inp.weight", i))) dense.push_back(i);
      }
      config["mlp_only_layers"] = std::move(dense);
    }
    add_common(config);
    return config;
  }

  // A layer without KV heads has a linear map in place of attention, or no attention if it has no heads at all.
  nlohmann::json deci() const {
    nlohmann::json config = {{"architectures", {"DeciLMForCausalLM"}}, {"model_type", "nemotron-nas"}};
    copy(kTransformerKeys, config);
    const std::vector<int64_t> heads = by_layer("attention.head_count"), kv_heads = by_layer("attention.head_count_kv"),
                               widths = by_layer("feed_forward_length");
    const int64_t most = std::max<int64_t>(1, *std::ranges::max_element(heads));
    config["num_attention_heads"] = most;
    auto blocks = nlohmann::json::array();
    for (size_t i = 0; i < heads.size(); ++i) {
      if (kv_heads[i] > 0 && (heads[i] != most || most % kv_heads[i] != 0))
        fail(file_.where(), {.what = fmt::format("layer {} has an impossible number of heads", i),
                             .got = fmt::format("{} heads and {} KV heads", heads[i], kv_heads[i]),
                             .expected = fmt::format("{} and a divisor of it", most)});
      nlohmann::json attention = {{"no_op", heads[i] == 0}, {"replace_with_linear", heads[i] > 0 && kv_heads[i] == 0}},
                     ffn = {{"no_op", widths[i] == 0}};
      if (kv_heads[i] > 0) attention["n_heads_in_group"] = most / kv_heads[i];
      if (widths[i] > 0) ffn["intermediate_size"] = widths[i];
      blocks.push_back({{"attention", std::move(attention)}, {"ffn", std::move(ffn)}});
    }
    config["block_configs"] = std::move(blocks);
    add_common(config);
    return config;
  }

  double rope_base() const { return file_.number_of(name("rope.freq_base")).value_or(10000.0); }

  // Files have the divisor of each frequency. The numbers of config.json that give those are in keys of our own, or
  // found by search.
  nlohmann::json llama3_scaling(const io::GgufTensor& tensor) const {
    const int64_t count = tensor.shape.count();
    if (tensor.type->type != GgmlType::f32 || count > Ranges::head_dim.max)
      fail(file_.where(), {.what = "tensor rope_freqs.weight does not fit a head",
                           .got = fmt::format("{} {}", tensor.type->name, to_string(tensor.shape)),
                           .expected = fmt::format("F32, at most {}", Ranges::head_dim.max)});
    std::vector<float> divisors(static_cast<size_t>(count));
    decode_ggml(GgmlType::f32, tensor.bytes.data(), divisors);
    RopeOptions o{.theta = rope_base(), .scaling = RopeScaling::llama3};
    const auto fits = [&] {
      for (size_t i = 0; i < divisors.size(); ++i) {
        const auto pair = static_cast<int64_t>(i);
        const double ratio = rope_frequency({.theta = o.theta}, pair, count) / rope_frequency(o, pair, count);
        if (!(std::abs(ratio / static_cast<double>(divisors[i]) - 1) <= 1e-4)) return false;
      }
      return true;
    };
    const auto numbers = [&]() -> nlohmann::json {
      return {{"rope_type", "llama3"},
              {"rope_theta", o.theta},
              {"factor", o.factor},
              {"low_freq_factor", o.low_freq_factor},
              {"high_freq_factor", o.high_freq_factor},
              {"original_max_position_embeddings", o.original_max_position_embeddings}};
    };
    if (const auto factor = file_.number_of(kLlama3Factor)) {
      o.factor = *factor;
      o.low_freq_factor = file_.number_of(kLlama3Low).value_or(o.low_freq_factor);
      o.high_freq_factor = file_.number_of(kLlama3High).value_or(o.high_freq_factor);
      o.original_max_position_embeddings = file_.number_of(kLlama3Original).value_or(0);
      if (fits()) return numbers();
    }
    o.factor = static_cast<double>(*std::ranges::max_element(divisors));
    o.low_freq_factor = 1, o.high_freq_factor = 4;  // of every released model
    for (double& original = o.original_max_position_embeddings = 16; original <= 1 << 24; original *= 2) {
      if (fits()) return numbers();
    }
    fail(file_.where(), {.what = "rope_freqs.weight does not match llama3's RoPE scaling",
                         .got = fmt::format("{:g} to {:g}", divisors.front(), divisors.back())});
  }

  // llama.cpp multiplies attn_factor by 1 + 0.1 ln(factor).
  nlohmann::json yarn_scaling() const {
    const auto number = [&](const char* key, double usual) { return file_.number_of(name(key)).value_or(usual); };
    const double factor = number("rope.scaling.factor", 1.0);
    const int64_t longest = file_.need_int(name("context_length")),
                  original = file_.int_of(name("rope.scaling.original_context_length")).value_or(longest);
    if (number("rope.scaling.yarn_ext_factor", 1.0) != 1 || !(factor >= 1))
      fail(file_.where(), {.what = name("rope.scaling.yarn_ext_factor") + " or the factor of YaRN is not supported",
                           .expected = "1, and a factor of 1 or more"});
    return {{"rope_type", "yarn"},
            {"rope_theta", rope_base()},
            {"factor", factor},
            {"beta_fast", number("rope.scaling.yarn_beta_fast", 32)},
            {"beta_slow", number("rope.scaling.yarn_beta_slow", 1)},
            {"attention_factor", yarn_attention_factor(factor) * number("rope.scaling.attn_factor", 1.0) *
                                     number("rope.scaling.yarn_attn_factor", 1.0)},
            {"original_max_position_embeddings", original}};
  }

  void add_common(nlohmann::json& config) const {
    config["rms_norm_eps"] = eps();
    config["attention_bias"] = any_tensor(".attn_output.bias");
    config["mlp_bias"] = any_tensor(".ffn_down.bias");
    config["rope_theta"] = rope_base();
    const std::string scaling = file_.string_of(name("rope.scaling.type")).value_or("none");
    if (scaling == "linear") {
      config["rope_scaling"] = {{"rope_type", "linear"},
                                {"rope_theta", rope_base()},
                                {"factor", file_.number_of(name("rope.scaling.factor")).value_or(1.0)}};
    } else if (scaling == "yarn") {
      config["rope_scaling"] = yarn_scaling();
    } else if (scaling != "none") {
      fail(file_.where(), {.what = name("rope.scaling.type") + " is not known",
                           .got = printable(scaling),
                           .expected = "none, linear or yarn"});
    }
    if (const io::GgufTensor* divisors = file_.find("rope_freqs.weight"))
      config["rope_scaling"] = llama3_scaling(*divisors);
    const int64_t head = file_.int_of(name("attention.key_length")).value_or(0),
                  rotated = file_.int_of(name("rope.dimension_count")).value_or(0);
    if (head == 0 && rotated > 0) config["head_dim"] = rotated;
    if (rotated > 0 && rotated < head) config[kRotaryDim] = rotated;
  }

  const io::Gguf& file_;
  std::string architecture_;
};

}  // namespace

std::string gguf_architecture(const io::Gguf& file) {
  constexpr std::string_view kKnown[] = {"nemotron_h", "nemotron_h_moe", "llama", "deci", "qwen3", "qwen3moe"};
  const std::string name = file.string_of("general.architecture").value_or("nothing");
  if (std::ranges::find(kKnown, name) == std::end(kKnown))
    fail(file.where(), {.what = "unsupported GGUF architecture",
                        .got = printable(name),
                        .expected = fmt::format("one of {}", fmt::join(kKnown, ", "))});
  return name;
}

int64_t gguf_layers(const io::Gguf& file) {
  const std::string architecture = gguf_architecture(file), count = architecture + ".block_count";
  const int64_t all = file.need_int(count), last = file.int_of(architecture + ".nextn_predict_layers").value_or(0);
  if (all < 1 || all > Ranges::layers.max || last < 0 || last >= all)
    fail(file.where(), {.what = count + " is out of range", .got = fmt::format("{}, and {} to predict", all, last)});
  return all - last;
}

bool gguf_predicts(const io::Gguf& file) {
  return gguf_architecture(file) == "nemotron_h_moe" && file.int_of("nemotron_h_moe.nextn_predict_layers") == 1 &&
         file.find(fmt::format("blk.{}.nextn.eh_proj.weight", gguf_layers(file)));
}

io::Json gguf_config(const io::Gguf& file) {
  return io::Json::parse(MetadataReader(file).config().dump(), file.where());
}

}  // namespace braid::models
