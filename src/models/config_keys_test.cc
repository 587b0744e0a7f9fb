// No key of a config is overlooked: with one key changed at a time, a family's config must be read as another Config,
// be refused, or the key is on a list of those that do not change what a model computes. A key that decides something
// and that nobody reads is found here, not in the answers of a model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "models/family.h"

#include "support/data.h"
#include "support/models.h"

namespace braid::models {
namespace {

using Object = nlohmann::json;

struct Dump {
  std::string operator()(const nn::Mamba2Spec& m) const {
    return fmt::format("M {} {} {} {} {} {} {} {} {} {} {} {}", m.hidden, m.heads, m.head_dim, m.state, m.groups,
                       m.conv_width, m.chunk, m.conv_bias, m.proj_bias, m.eps, m.dt_min, m.dt_max);
  }
  std::string operator()(const nn::AttentionSpec& a) const {
    return fmt::format("* {} {} {} {} {} {} {} {} {}", a.hidden, a.heads, a.kv_heads, a.head_dim, a.bias, a.out_bias,
                       a.qk_bias, a.qk_norm, a.eps);
  }
  std::string operator()(const nn::MlpSpec& m) const {
    return fmt::format("- {} {} {} {} {}", m.hidden, m.width, static_cast<int>(m.act), m.gated, m.bias);
  }
  std::string operator()(const nn::MoeSpec& m) const {
    return fmt::format("E {} {} {} {} {} {} {} {} {} {} {} {}", m.hidden, m.experts, m.top_k, m.width, m.latent,
                       m.shared_width, m.gated, static_cast<int>(m.router), m.n_group, m.topk_group, m.normalise,
                       m.scale);
  }
  std::string operator()(const LinearSpec& l) const { return fmt::format("L {}", static_cast<int>(l.role)); }
};

// Everything of a Config that a family's reader sets.
std::string dump(const Config& c) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {}\n", c.family, c.vocab, c.hidden, c.positions_max,
                                 c.learned_positions, c.eps, c.embedding_scale, static_cast<int>(c.norm), c.tied);
  const auto add = [&](const std::vector<LayerSpec>& layers) {
    for (const LayerSpec& layer : layers) {
      for (const PartSpec& part : layer.parts)
        text += fmt::format("{} {} {}\n", std::visit(Dump{}, part.block), part.norm, part.after);
      text += "|\n";
    }
  };
  add(c.layers);
  if (c.loop)
    text += fmt::format("loop {} {} {} {} {}\n", c.loop->begin, c.loop->end, c.loop->steps, c.loop->backward_steps,
                        c.loop->start_std);
  if (c.mtp) add(c.mtp->layers);
  if (c.rope) {
    const RopeOptions& o = c.rope->options;
    text += fmt::format("rope {} {} {} {} {} {} {} {} {} {} {} {} {}\n", c.rope->dim, c.rope->adjacent,
                        c.rope->positions_max, o.theta, static_cast<int>(o.scaling), o.factor, o.low_freq_factor,
                        o.high_freq_factor, o.original_max_position_embeddings, o.beta_fast, o.beta_slow, o.truncate,
                        o.attention_factor);
  }
  text += fmt::format("{} {} {} {} {} {}\n", c.dropout.embedding, c.dropout.residual, c.dropout.attention,
                      fmt::join(c.eos, ","), c.bos.value_or(-1), c.padding.value_or(-1));
  return text;
}

// Keys that do not change what a model computes.
const std::set<std::string> kOfNoMatter = {
    // names, versions and how the file is stored, which others read
    "/architectures", "/model_type", "/transformers_version", "/dtype", "/torch_dtype", "/_name_or_path", "/auto_map",
    "/quantization_config", "/is_decoder", "/model_version",
    // for initialisation and training
    "/initializer_range", "/rescale_prenorm_residual", "/time_step_min", "/time_step_max", "/time_step_floor",
    "/mamba_dt_min", "/mamba_dt_max", "/mamba_dt_init_floor", "/router_aux_loss_coef", "/output_router_logits",
    "/hidden_dropout",
    // how it is computed, not what
    "/use_cache", "/pretraining_tp", "/use_mamba_kernels", "/num_logits_to_keep", "/mamba_ssm_cache_dtype",
    "/moe_shared_expert_overlap", "/residual_in_fp32", "/reorder_and_upcast_attn", "/attn_implementation",
    // GPT-2's heads for other tasks
    "/summary_activation", "/summary_first_dropout", "/summary_proj_to_labels", "/summary_type", "/summary_use_proj"};

struct Case {
  std::string name;
  Object config;
  std::set<std::string> ignored{};  // more keys of no matter, in this family
  std::vector<Object> changes{};    // more that must count: merged into the config
};

Object other_than(const Object& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>() + 1;
  if (value.is_number()) return value.get<double>() == 0 ? 0.25 : value.get<double>() / 2;
  if (value.is_string()) return value.get<std::string>() + "_other";
  if (value.is_array()) {
    Object more = value;
    more.push_back(value.empty() ? Object(1) : value.back().is_number() ? other_than(value.back()) : value.back());
    return more;
  }
  return true;  // null: a wrong type is refused too, so a case lists what such a key may be
}

void expect_counts(const std::string& what, const std::string& base, const Object& changed) {
  std::string text;
  const std::string refused = error_of([&] { text = dump(read(changed)); });
  EXPECT_TRUE(!refused.empty() || text != base) << what << " changes nothing";
  EXPECT_EQ(refused.find('\n'), std::string::npos) << refused;
}

void check(const Case& c, const Object& node, const std::string& path, const std::string& base) {
  for (const auto& [key, value] : node.items()) {
    const std::string here = path + "/" + key;
    if (kOfNoMatter.contains(here) || c.ignored.contains(here) || key == "__float__") continue;
    const bool inside = value.is_object() || (value.is_array() && !value.empty() && value[0].is_object());
    if (inside) {
      check(c, value, here, base);
    } else {
      Object changed = c.config;
      changed[Object::json_pointer(here)] = other_than(value);
      expect_counts(c.name + here, base, changed);
    }
  }
}

Object stored(const std::string& name) {
  Object config = io::Json::read(support::data("hf/" + name + "/config.json")).raw();
  if (config.contains("time_step_limit")) config["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}};
  return config;
}

Object with(Object config, const Object& more) {
  config.update(more);
  return config;
}

// What transformers 5 writes for every dense model.
const Object kDense = {{"attention_bias", false},
                       {"attention_dropout", 0.0},
                       {"bos_token_id", 1},
                       {"dtype", "bfloat16"},
                       {"eos_token_id", 2},
                       {"head_dim", 12},
                       {"hidden_act", "silu"},
                       {"initializer_range", 0.02},
                       {"mlp_bias", false},
                       {"pad_token_id", 0},
                       {"rms_norm_eps", 1e-5},
                       {"use_cache", true},
                       {"rope_parameters", {{"rope_theta", 10000.0}, {"rope_type", "default"}}}};

const Object kWindows = {{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 1}};
const Object kSlidingTypes = {{"layer_types", {"full_attention", "sliding_attention"}}};

const Object kYarn = {{"rope_parameters",
                       {{"factor", 4.0},
                        {"original_max_position_embeddings", 64},
                        {"beta_fast", 16.0},
                        {"beta_slow", 2.0},
                        {"truncate", true},
                        {"mscale", 1.5},
                        {"mscale_all_dim", 0.5},
                        {"rope_theta", 5e5},
                        {"rope_type", "yarn"}}}};

std::vector<Case> cases() {
  const Object qwen = {{"use_sliding_window", false},
                       {"sliding_window", nullptr},
                       {"max_window_layers", 28},
                       {"layer_types", {"full_attention", "full_attention"}}};
  const std::set<std::string> windows = {"/use_sliding_window", "/sliding_window", "/max_window_layers",
                                         "/layer_types"};
  const Object experts = {{"num_experts", 6},
                          {"num_local_experts", 6},
                          {"num_experts_per_tok", 2},
                          {"moe_intermediate_size", 12},
                          {"norm_topk_prob", true},
                          {"decoder_sparse_step", 1},
                          {"mlp_only_layers", Object::array()}};
  const Object llama3 = {{"rope_parameters",
                          {{"factor", 8.0},
                           {"high_freq_factor", 4.0},
                           {"low_freq_factor", 1.0},
                           {"original_max_position_embeddings", 64},
                           {"rope_theta", 5e5},
                           {"rope_type", "llama3"}}}};
  const std::vector<Object> hybrids = {{{"mamba_hidden_act", "gelu"}},
                                       {{"mlp_hidden_act", "silu"}},
                                       {{"use_bias", true}, {"mamba_proj_bias", false}},
                                       {{"mlp_bias", true}},
                                       {{"attention_bias", true}},
                                       {{"sliding_window", 64}},
                                       {{"time_step_limit", {0.01, 0.5}}}};
  // No RoPE; the width of Mamba blocks is heads times head_dim; the list of layers is the number of them.
  std::set<std::string> unread = {"/rope_theta",        "/partial_rotary_factor", "/expand",         "/mamba_expand",
                                  "/num_hidden_layers", "/pad_token_id",          "/mamba_proj_bias"};
  std::set<std::string> routed = unread;
  routed.insert("/num_nextn_predict_layers");  // how many: the first block is read, as often as it is asked to predict
  routed.insert("/intermediate_size");         // without dense layers
  routed.insert("/sliding_window");            // null: below
  std::set<std::string> legacy = unread;
  legacy.insert("/norm_eps");  // the same as layer_norm_epsilon
  return {
      {"llama", with(with(dense("llama"), kDense), llama3), {}, {kSlidingTypes, {{"partial_rotary_factor", 0.5}}}},
      {"llama with yarn", with(with(dense("llama"), kDense), kYarn), {}, {}},
      {"qwen3",
       with(with(dense("qwen3"), kDense), qwen),
       windows,
       {kSlidingTypes, with(kWindows, {{"layer_types", nullptr}})}},
      {"qwen3_moe",
       with(with(with(dense("qwen3_moe"), kDense), qwen), experts),
       [&] {
         auto more = windows;
         more.insert({"/mlp_bias", "/intermediate_size", "/num_local_experts"});  // of dense layers; another name
         return more;
       }(),
       {kSlidingTypes, kWindows, {{"hidden_act", "gelu_pytorch_tanh"}}}},
      {"nemotron",
       with(with(dense("nemotron"), kDense), {{"norm_eps", 1e-5}, {"hidden_act", "relu2"}}),
       {"/rms_norm_eps"},
       {{{"partial_rotary_factor", 0.25}},
        {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}}}}}},
      {"nemotron-nas",
       with(stored("nemotron-nas"), {{"pad_token_id", 0}}),
       {"/intermediate_size", "/num_key_value_heads", "/num_hidden_layers", "/block_configs"},
       {}},
      {"nemotron-h-latent-mtp", stored("nemotron-h-latent-mtp"), routed, hybrids},
      {"nemotron-h-legacy", stored("nemotron-h-legacy"), legacy, hybrids},
      {"gpt2", stored("gpt2"), {"/pad_token_id"}, {{{"add_cross_attention", true}}}},
  };
}

TEST(ConfigKeys, EveryKeyCountsOrIsKnownNotTo) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    std::string base;
    ASSERT_EQ(error_of([&] { base = dump(read(c.config)); }), "");
    check(c, c.config, "", base);
    for (const Object& change : c.changes) expect_counts(c.name + " " + change.dump(), base, with(c.config, change));
  }
}

// Blocks of Llama-Nemotron have keys of their own, which released files hold as null.
TEST(ConfigKeys, BlocksAreReadWhole) {
  const Object config = stored("nemotron-nas");
  const std::string base = dump(read(config));
  for (const auto& [path, usual, value] : std::vector<std::tuple<std::string, Object, Object>>{
           {"/block_configs/0/attention/n_heads_in_group", 4, 2},
           {"/block_configs/0/attention/no_op", false, true},
           {"/block_configs/0/attention/replace_with_linear", false, true},
           {"/block_configs/0/ffn/ffn_mult", 0.5, 8.0},
           {"/block_configs/0/ffn/no_op", false, true},
           {"/block_configs/0/ffn/replace_with_linear", false, true},
           {"/block_configs/5/ffn/hidden_act", "silu", "gelu"},
           {"/block_configs/5/ffn/intermediate_size", 144, 160},
           {"/block_configs/0/attention/window_length", nullptr, 2048},
           {"/block_configs/0/attention/num_sink_tokens", nullptr, 4},
           {"/block_configs/0/attention/sparsify", nullptr, {"q_proj"}},
           {"/block_configs/0/attention/use_prefill_window_attention", false, true},
           {"/block_configs/0/attention/unshifted_sink", false, true},
           {"/block_configs/0/ffn/sparsify", nullptr, {"up_proj"}},
           {"/block_configs/0/ffn/moe", nullptr, {{"num_local_experts", 4}}}}) {
    Object changed = config;
    changed[Object::json_pointer(path)] = usual;
    EXPECT_EQ(dump(read(changed)), base) << path;
    changed[Object::json_pointer(path)] = value;
    expect_counts(path, base, changed);
    if (usual.is_null()) {
      EXPECT_NE(refusal(changed).find("is not supported; got"), std::string::npos) << path << ": " << refusal(changed);
    }
  }
}

// The same for the configs of the fixtures, which transformers wrote.
TEST(ConfigKeys, ConfigsOfTransformersHoldNoKeyThatIsUnknownHere) {
  const std::string fixtures = support::fixtures();
  if (fixtures.empty()) GTEST_SKIP() << "without BRAID_FIXTURES";
  std::set<std::string> known = kOfNoMatter;
  for (const Case& c : cases()) {
    known.insert(c.ignored.begin(), c.ignored.end());
    for (const auto& [key, value] : c.config.items()) known.insert("/" + key);
  }
  for (const auto& folder : std::filesystem::directory_iterator(std::filesystem::path(fixtures) / "hf")) {
    const io::Json config = io::Json::read(folder.path() / "config.json");
    for (const auto& [key, value] : config.members()) {
      if (key == "block_configs" || key == "mtp_block_configs") continue;
      EXPECT_TRUE(known.contains("/" + key)) << folder.path() << " " << key;
    }
  }
}

}  // namespace
}  // namespace braid::models
