// Config files in every spelling, read into the one description that the rest of the code uses.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/config_file.h"
#include "models/family.h"

#include "support/models.h"

namespace braid::models {
namespace {

using Object = nlohmann::json;

template <class Spec>
const Spec& part(const Config& c, size_t layer, size_t index = 0) {
  return std::get<Spec>(c.layers.at(layer).parts.at(index).block);
}

TEST(NemotronH, ReadsAConfigOfTransformers) {
  const Config c = read(hybrid());
  EXPECT_EQ(c.pattern(), "ME*-");
  EXPECT_EQ(c.family, "nemotron_h");
  EXPECT_FALSE(c.rope);  // no RoPE, whatever rope_theta says
  EXPECT_FALSE(c.mtp);
  const auto& m = part<nn::Mamba2Spec>(c, 0);
  EXPECT_EQ(m.inner(), 6 * 10);  // not hidden * expand
  EXPECT_EQ(m.in_rows(), 60 + 60 + 2 * 2 * 24 + 6);
  EXPECT_EQ(m.chunk, 64);
  EXPECT_EQ(m.dt_min, 0);  // time_step_min is for initialisation
  EXPECT_EQ(m.dt_max, 0);
  const auto& e = part<nn::MoeSpec>(c, 1);
  EXPECT_EQ(e.width, 20);
  EXPECT_EQ(e.shared_width, 2 * 28);  // n_shared_experts multiplies
  EXPECT_FALSE(e.gated);
  EXPECT_EQ(e.router, RouterKind::sigmoid);
  EXPECT_EQ(e.n_group, 4);
  const auto& a = part<nn::AttentionSpec>(c, 2);
  EXPECT_EQ(a.heads * a.head_dim, 4 * 12);  // not hidden
  EXPECT_EQ(part<nn::MlpSpec>(c, 3).act, Act::relu2);
}

TEST(NemotronH, OlderSpellingsMeanTheSame) {
  Object old = hybrid();
  const std::vector<std::pair<const char*, const char*>> renamed = {
      {"n_groups", "mamba_n_groups"},       {"conv_kernel", "mamba_d_conv"},       {"head_dim", "attention_head_dim"},
      {"chunk_size", "mamba_chunk_size"},   {"ssm_state_size", "mamba_state_dim"}, {"layer_norm_epsilon", "norm_eps"},
      {"use_conv_bias", "mamba_conv_bias"}, {"time_step_limit", "mamba_dt_limit"}};
  for (const auto& [now, before] : renamed) {
    old[before] = old[now];
    old.erase(now);
  }
  old.erase("layers_block_type");
  old["hybrid_override_pattern"] = "ME*-";
  EXPECT_EQ(describe(read(old)), describe(read(hybrid())));
  Object names = hybrid();
  names["layers_block_type"] = {"linear_attention", "moe", "full_attention", "mlp"};
  EXPECT_EQ(describe(read(names)), describe(read(hybrid())));
}

// Of transformers' attribute_map.
TEST(NemotronH, OtherNamesOfKeys) {
  Object other = hybrid();
  other["layer_types"] = other["layers_block_type"];
  other["num_local_experts"] = other["n_routed_experts"];
  other.erase("layers_block_type");
  other.erase("n_routed_experts");
  EXPECT_EQ(describe(read(other)), describe(read(hybrid())));
  const io::Json json = io::Json::parse(other.dump(), "config.json");
  for (const Spelling spelling : {Spelling::released, Spelling::transformers}) {
    const Object spelled = Object::parse(config_text(json, spelling));
    EXPECT_EQ(describe(read(spelled)), describe(read(hybrid())));
    EXPECT_FALSE(spelled.contains("layer_types") || spelled.contains("num_local_experts"));
  }
  EXPECT_EQ(read_config(first_layers(json, 2)).pattern(), "ME");
}

TEST(NemotronH, LettersMayComeInAnyOrder) {
  Object c = hybrid();
  for (const char* letters : {"M--*---EE", "MM", "----", "*", "EM*-"}) {
    c["layers_block_type"] = letters;
    EXPECT_EQ(read(c).pattern(), letters);
  }
}

TEST(NemotronH, TheClampOfDtIsItsLimit) {
  Object c = hybrid();
  c["time_step_limit"] = {0.01, 0.5};
  EXPECT_FLOAT_EQ(part<nn::Mamba2Spec>(read(c), 0).dt_min, 0.01f);
  EXPECT_FLOAT_EQ(part<nn::Mamba2Spec>(read(c), 0).dt_max, 0.5f);
  for (const auto& [least, most] : {std::pair(0.5, 0.0), {0.0, -1.0}, {0.5, 0.1}}) {
    c["time_step_limit"] = {least, most};
    EXPECT_NE(refusal(c).find("time_step_limit does not go up"), std::string::npos) << refusal(c);
  }
}

TEST(NemotronH, UseBiasDecidesTheBiasesOfMamba) {
  Object c = hybrid();
  const auto biases = [&] { return part<nn::Mamba2Spec>(read(c), 0).proj_bias; };
  EXPECT_FALSE(biases());
  c["use_bias"] = true;
  EXPECT_TRUE(biases());
  c["mamba_proj_bias"] = false;
  EXPECT_TRUE(biases());
  c["use_bias"] = false;
  c["mamba_proj_bias"] = true;
  EXPECT_FALSE(biases());
}

TEST(NemotronH, BiasesOfExpertsAreRefused) {
  Object c = hybrid();
  c["mlp_bias"] = true;
  EXPECT_NE(refusal(c).find("mlp_bias is not supported; got true; expected false"), std::string::npos) << refusal(c);
  c["layers_block_type"] = "M*-";
  EXPECT_TRUE(part<nn::MlpSpec>(read(c), 2).bias);
  c["mlp_hidden_act"] = "silu";
  EXPECT_EQ(part<nn::MlpSpec>(read(c), 2).act, Act::silu);
  c["num_nextn_predict_layers"] = 1;  // a block with experts
  EXPECT_NE(refusal(c).find("mlp_hidden_act is not supported here"), std::string::npos) << refusal(c);
}

TEST(NemotronH, WidthsOfDenseLayersMayBeAList) {
  Object c = hybrid();
  c["layers_block_type"] = {"mamba", "mlp", "attention", "mlp"};
  c["intermediate_size"] = {0, 32, 0, 48};  // one per layer; those of other layers are ignored
  EXPECT_EQ(part<nn::MlpSpec>(read(c), 1).width, 32);
  EXPECT_EQ(part<nn::MlpSpec>(read(c), 3).width, 48);
  c["intermediate_size"] = {32, 48};  // one per dense layer
  EXPECT_EQ(part<nn::MlpSpec>(read(c), 1).width, 32);
  EXPECT_EQ(part<nn::MlpSpec>(read(c), 3).width, 48);
  c["intermediate_size"] = {32};
  EXPECT_NE(refusal(c).find("intermediate_size"), std::string::npos);
}

TEST(NemotronH, PuzzleBlocksHaveTheirOwnExperts) {
  Object c = hybrid();
  for (const char* key : {"layers_block_type", "n_group", "topk_group"}) c.erase(key);
  c["num_hidden_layers"] = nullptr;
  c["moe_latent_size"] = 16;
  c["block_configs"] =
      Object::array({{{"block_type", "mamba"}},
                     {{"block_type", "moe"}, {"n_routed_experts", 4}, {"num_experts_per_tok", 1}},
                     {{"block_type", "attention"}},
                     {{"block_type", "moe"}, {"moe_intermediate_size", 36}, {"n_routed_experts", nullptr}}});
  const Config read_back = read(c);
  EXPECT_EQ(read_back.pattern(), "ME*E");
  const auto &first = part<nn::MoeSpec>(read_back, 1), &last = part<nn::MoeSpec>(read_back, 3);
  EXPECT_EQ(first.experts, 4);
  EXPECT_EQ(first.top_k, 1);
  EXPECT_EQ(first.width, 20);  // what a block omits is the model's
  EXPECT_EQ(last.experts, 8);
  EXPECT_EQ(last.top_k, 3);
  EXPECT_EQ(last.width, 36);
  EXPECT_EQ(last.latent, 16);
  EXPECT_EQ(last.n_group, 1);  // absent: one group
  EXPECT_EQ(last.topk_group, 1);
}

TEST(NemotronH, PuzzleBlocksHaveTheirOwnHeads) {
  Object c = hybrid();
  c.erase("layers_block_type");
  c["num_hidden_layers"] = nullptr;
  c["block_configs"] =
      Object::array({{{"block_type", "mamba"}, {"mamba_num_heads", 4}, {"mamba_head_dim", 5}},
                     {{"block_type", "attention"}, {"num_attention_heads", 2}, {"num_key_value_heads", 1}},
                     {{"block_type", "mamba"}},
                     {{"block_type", "attention"}, {"num_key_value_heads", 4}}});
  const Config read_back = read(c);
  EXPECT_EQ(part<nn::Mamba2Spec>(read_back, 0).heads, 4);
  EXPECT_EQ(part<nn::Mamba2Spec>(read_back, 0).head_dim, 5);
  EXPECT_EQ(part<nn::AttentionSpec>(read_back, 1).heads, 2);
  EXPECT_EQ(part<nn::AttentionSpec>(read_back, 1).kv_heads, 1);
  EXPECT_EQ(part<nn::Mamba2Spec>(read_back, 2).heads, 6);
  EXPECT_EQ(part<nn::AttentionSpec>(read_back, 3).heads, 4);
  EXPECT_EQ(part<nn::AttentionSpec>(read_back, 3).kv_heads, 4);
  c["block_configs"][0]["mamba_num_heads"] = 3;  // in two groups
  EXPECT_NE(refusal(c).find("block_configs[0].mamba_num_heads"), std::string::npos) << refusal(c);
  c["block_configs"][0]["mamba_num_heads"] = 4;
  c["block_configs"][1]["num_key_value_heads"] = 4;
  EXPECT_NE(refusal(c).find("block_configs[1]"), std::string::npos) << refusal(c);
}

TEST(NemotronH, ThePredictionBlock) {
  Object c = hybrid();
  c["num_nextn_predict_layers"] = 1;
  c["mtp_hybrid_override_pattern"] = "*E";
  c["moe_latent_size"] = 16;
  const Config read_back = read(c);
  ASSERT_TRUE(read_back.mtp);
  ASSERT_EQ(read_back.mtp->layers.size(), 2u);
  EXPECT_EQ(std::get<nn::MoeSpec>(read_back.mtp->layers[1].parts[0].block).latent, 16);
  EXPECT_EQ(read_back.mtp->final_norm, "mtp.layers.1.final_layernorm");
  c["num_nextn_predict_layers"] = 0;
  EXPECT_FALSE(read(c).mtp);
}

TEST(NemotronH, RefusesByName) {
  const auto refused = [](const char* key, const Object& value, const std::vector<std::string>& says) {
    Object c = hybrid();
    c[key] = value;
    const std::string text = refusal(c);
    for (const std::string& part : says) EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  refused("layers_block_type", {"mamba", "warp"}, {"layers_block_type[1]", "warp"});
  refused("layers_block_type", "MEX", {"unknown pattern letter"});
  refused("layers_block_type", Object::array(), {"layers_block_type"});
  refused("n_groups", 4, {"n_groups", "6"});
  refused("num_key_value_heads", 3, {"num_key_value_heads"});
  refused("num_experts_per_tok", 9, {"num_experts_per_tok", "8"});
  refused("n_group", 3, {"n_group"});
  refused("n_group", 8, {"n_group"});
  refused("topk_group", 5, {"topk_group"});
  refused("topk_group", 1, {"topk_group"});
  refused("mlp_hidden_act", "swish2", {"mlp_hidden_act", "relu2"});
  refused("hidden_size", 1.5, {"hidden_size"});
}

TEST(Config, AnUnknownArchitectureListsTheKnown) {
  const std::string text = refusal({{"architectures", Object::array({"WarpForCausalLM"})}, {"model_type", "warp"}});
  for (const char* says : {"WarpForCausalLM", "NemotronHForCausalLM", "Qwen3MoeForCausalLM"})
    EXPECT_NE(text.find(says), std::string::npos) << text;
}

TEST(Config, AGraphNetworkIsNamedAsOne) {
  const std::string text = refusal({{"model", "sage"}, {"task", "node"}, {"classes", 4}});
  EXPECT_NE(text.find("is a graph network, not a language model; got sage; try braid eval with its folder"),
            std::string::npos)
      << text;
  for (const Object& other :
       {Object{{"model", "sage"}, {"classes", 4}}, Object{{"model", 3}, {"task", 1}, {"classes", 4}}})
    EXPECT_NE(refusal(other).find("unknown architecture"), std::string::npos);
}

TEST(Config, ThePaddingRowIsKnown) {
  for (const char* type : {"llama", "nemotron", "nemotron-nas"}) {
    SCOPED_TRACE(type);
    nlohmann::json config = dense(type);
    if (type == std::string_view("nemotron-nas"))
      config["block_configs"] = {{{"attention", {{"n_heads_in_group", 2}}}, {"ffn", {{"ffn_mult", 1.0}}}}};
    EXPECT_FALSE(read(config).padding);
    for (const auto& [id, row] :
         std::vector<std::pair<int, std::optional<int64_t>>>{{0, 0}, {3, 3}, {49, 49}, {50, {}}}) {
      config["pad_token_id"] = id;  // 50: no row of the table
      const Config c = read(config);
      EXPECT_EQ(c.padding, row) << id;
      for (const TensorSpec& t : inventory(c))
        EXPECT_EQ(t.padding, t.role == ParamRole::embedding ? row.value_or(-1) : -1);
    }
    config["pad_token_id"] = nullptr;
    EXPECT_FALSE(read(config).padding);
  }
  nlohmann::json other = hybrid();
  other["pad_token_id"] = 3;
  EXPECT_FALSE(read(other).padding);  // its embedding trains every row
}

TEST(Llama, RopeInItsForms) {
  const auto rope = [](const Object& more) {
    Object c = dense("llama");
    c.update(more);
    return *read(c).rope;
  };
  EXPECT_EQ(rope(Object::object()).options.theta, 10000);
  EXPECT_EQ(rope({{"rope_theta", 5e5}}).options.theta, 5e5);
  EXPECT_EQ(rope({{"rope_parameters", {{"rope_theta", 7e5}, {"rope_type", "default"}}}}).options.theta, 7e5);
  EXPECT_EQ(rope({{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}).options.scaling, RopeScaling::linear);
  const auto llama3 = rope({{"rope_scaling",
                             {{"rope_type", "llama3"},
                              {"factor", 8},
                              {"low_freq_factor", 1},
                              {"high_freq_factor", 4},
                              {"original_max_position_embeddings", 64}}}});
  EXPECT_EQ(llama3.options.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama3.options.original_max_position_embeddings, 64);
  // As transformers: without scaling Llama's code does not read the factor, with it the parts would not fit together.
  EXPECT_EQ(rope({{"partial_rotary_factor", 0.5}}).dim, 8);
  EXPECT_EQ(rope({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}).dim, 8);
  EXPECT_EQ(rope({{"rotary_dim", 4}}).dim, 4);  // of a GGUF file
  Object c = dense("llama");
  c["rope_scaling"] = {{"type", "linear"}, {"factor", 4}, {"partial_rotary_factor", 0.5}};
  EXPECT_NE(refusal(c).find("rope_scaling.partial_rotary_factor is not supported"), std::string::npos) << refusal(c);
  c["rope_scaling"].erase("partial_rotary_factor");
  c["partial_rotary_factor"] = 0.5;
  EXPECT_NE(refusal(c).find("partial_rotary_factor is not supported"), std::string::npos) << refusal(c);
  c.erase("partial_rotary_factor");
  c["rope_scaling"] = {{"rope_type", "longrope"}};
  EXPECT_NE(refusal(c).find("longrope"), std::string::npos);
}

TEST(Nemotron, OddPartsOfAHeadAreRefused) {
  Object c = dense("nemotron");
  c["architectures"] = {"NemotronForCausalLM"};
  c["head_dim"] = 20;
  c["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(read(c).rope->dim, 10);
  c["partial_rotary_factor"] = 0.75;
  EXPECT_NE(refusal(c).find("got 15 of 20"), std::string::npos) << refusal(c);
}

TEST(Llama, YarnAndDynamicRope) {
  const auto rope = [](const Object& scaling) {
    Object c = dense("qwen3");
    c["rope_scaling"] = scaling;
    return *read(c).rope;
  };
  const auto usual = rope({{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}});
  EXPECT_EQ(usual.options.scaling, RopeScaling::yarn);
  EXPECT_EQ(usual.options.original_max_position_embeddings, 64);
  EXPECT_NEAR(usual.options.attention_factor, 0.1 * std::log(4) + 1, 1e-12);
  // The length is the model's where nothing says it, and then the factor is that of the lengths.
  const auto bare = rope({{"type", "yarn"}, {"original_max_position_embeddings", 32}, {"truncate", false}});
  EXPECT_EQ(bare.options.factor, 4);
  EXPECT_FALSE(bare.options.truncate);
  EXPECT_EQ(rope({{"type", "yarn"}, {"factor", 2}}).options.original_max_position_embeddings, 128);
  const auto scaled = rope({{"rope_type", "yarn"}, {"factor", 4}, {"mscale", 2}, {"mscale_all_dim", 0.5}});
  EXPECT_NEAR(scaled.options.attention_factor, (0.2 * std::log(4) + 1) / (0.05 * std::log(4) + 1), 1e-12);
  EXPECT_EQ(rope({{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 0.5}}).options.attention_factor, 0.5);

  const auto dynamic = rope({{"rope_type", "dynamic"}, {"factor", 2}});
  EXPECT_EQ(dynamic.options.scaling, RopeScaling::none);
  EXPECT_EQ(dynamic.positions_max, 128);
  nn::RopeTable table(dynamic);
  table.ensure(128);
  EXPECT_NE(error_of([&] { table.ensure(129); }).find("[rope] a sequence is longer than dynamic RoPE"),
            std::string::npos);
}

TEST(Llama, ReluIsAnActivation) {
  Object c = dense("llama");
  c["hidden_act"] = "relu";
  EXPECT_EQ(part<nn::MlpSpec>(read(c), 0, 1).act, Act::relu);
}

TEST(Llama, HeadWidthIsItsOwn) {
  Object c = dense("llama");
  EXPECT_EQ(part<nn::AttentionSpec>(read(c), 0).head_dim, 8);  // hidden / heads
  c["head_dim"] = 20;
  EXPECT_EQ(part<nn::AttentionSpec>(read(c), 0).head_dim, 20);
}

TEST(Qwen3, SomeLayersStayDense) {
  Object c = dense("qwen3_moe");
  c.update({{"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12}, {"norm_topk_prob", true}});
  c["num_hidden_layers"] = 4;
  c["mlp_only_layers"] = {1};
  EXPECT_EQ(read(c).pattern(), "*E*-*E*E");
  c["mlp_only_layers"] = Object::array();
  c["decoder_sparse_step"] = 2;
  EXPECT_EQ(read(c).pattern(), "*-*E*-*E");
  EXPECT_TRUE(part<nn::AttentionSpec>(read(c), 0).qk_norm);
  EXPECT_EQ(part<nn::MoeSpec>(read(c), 1, 1).router, RouterKind::softmax);
  EXPECT_TRUE(part<nn::AttentionSpec>(read(dense("qwen3")), 0).qk_norm);
  EXPECT_FALSE(part<nn::AttentionSpec>(read(dense("llama")), 0).qk_norm);
}

// transformers' code of Qwen3 takes the windows of layer_types, without them those from max_window_layers on, and that
// of Qwen3-MoE gives every layer one.
TEST(Qwen3, SlidingWindowsAreRefused) {
  Object c = dense("qwen3");
  c.update({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 1}});
  EXPECT_NE(refusal(c).find("use_sliding_window is not supported; got true; expected false; try"), std::string::npos);
  c["max_window_layers"] = 2;  // of two
  EXPECT_EQ(refusal(c), "");
  c["max_window_layers"] = 1;
  c["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(refusal(c), "");
  c["layer_types"][1] = "sliding_attention";
  EXPECT_NE(refusal(c).find("layer_types[1] is not supported; got \"sliding_attention\"; expected full_attention"),
            std::string::npos)
      << refusal(c);
  c.erase("layer_types");
  c["sliding_window"] = nullptr;
  EXPECT_EQ(refusal(c), "");
  c.erase("sliding_window");  // 4096 in transformers
  EXPECT_NE(refusal(c), "");
  Object sparse = dense("qwen3_moe");
  sparse.update({{"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12}});
  EXPECT_EQ(refusal(sparse), "");
  sparse.update({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 9}});
  EXPECT_NE(refusal(sparse).find("use_sliding_window"), std::string::npos);
  sparse["use_sliding_window"] = false;
  sparse["hidden_act"] = "gelu";
  EXPECT_NE(refusal(sparse).find("hidden_act is not supported here; got \"gelu\"; expected silu"), std::string::npos);
}

TEST(Nemotron, HalfRotaryAndOnePlusWeight) {
  Object c = dense("nemotron");
  const Config plain = read(c);
  EXPECT_EQ(plain.norm, NormKind::layer_plus_one);
  EXPECT_EQ(plain.rope->dim, 4);
  EXPECT_FALSE(part<nn::MlpSpec>(plain, 0, 1).gated);
  // The default holds as well where the factor is the one thing that rope_parameters do not say.
  c["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  EXPECT_EQ(read(c).rope->dim, 4);
  c["rope_parameters"]["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(read(c).rope->dim, 8);
  c.erase("rope_parameters");
  c["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(read(c).rope->dim, 2);
  c["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_EQ(read(c).rope->dim, 2);
}

TEST(NemotronNas, BlocksOfEveryKind) {
  Object c = dense("nemotron-nas");
  c["num_key_value_heads"] = nullptr;
  c["intermediate_size"] = nullptr;
  const auto block = [](const Object& attention, const Object& ffn) {
    return Object{{"attention", attention}, {"ffn", ffn}};
  };
  const Object none = {{"n_heads_in_group", nullptr}, {"no_op", true}, {"replace_with_linear", false}};
  const Object linear = {{"n_heads_in_group", nullptr}, {"no_op", false}, {"replace_with_linear", true}};
  const Object dummy = {
      {"n_heads_in_group", nullptr}, {"ffn_mult", nullptr}, {"no_op", false}, {"replace_with_linear", false}};
  c["block_configs"] = {block({{"n_heads_in_group", 2}}, {{"ffn_mult", 1.0}}),
                        block(none, {{"intermediate_size", 40}}),
                        block(linear, {{"no_op", true}}),
                        block(none, none),
                        block(dummy, dummy),
                        block({{"n_heads_in_group", 4}}, {{"replace_with_linear", true}}),
                        block({{"n_heads_in_group", 4}, {"no_op", true}}, {{"ffn_mult", 1.0}, {"no_op", true}})};
  const Config read_back = read(c);
  EXPECT_EQ(read_back.pattern(), "*--L..*L.") << "no_op decides, whatever else is set";
  EXPECT_EQ(part<nn::AttentionSpec>(read_back, 0).kv_heads, 2);
  EXPECT_EQ(part<nn::AttentionSpec>(read_back, 5).kv_heads, 1);
  EXPECT_EQ(part<nn::MlpSpec>(read_back, 0, 1).width, 256);  // 2/3 of 2 * 32, up to a multiple of 256
  EXPECT_EQ(part<nn::MlpSpec>(read_back, 1).width, 40);
  c["block_configs"][0]["ffn"]["ffn_mult"] = 0.01;
  EXPECT_NE(refusal(c).find("ffn_mult leaves no channel"), std::string::npos) << refusal(c);
  c["block_configs"][0]["ffn"]["ffn_mult"] = 1.0;
  c["block_configs"][0]["attention"]["n_heads_in_group"] = 3;
  EXPECT_NE(refusal(c).find("n_heads_in_group"), std::string::npos);
}

TEST(Gpt2, ItsOwnSpellings) {
  Object c = {{"architectures", {"GPT2LMHeadModel"}},
              {"model_type", "gpt2"},
              {"vocab_size", 60},
              {"n_embd", 32},
              {"n_head", 4},
              {"n_layer", 2},
              {"n_positions", 50},
              {"n_inner", nullptr}};
  const Config read_back = read(c);
  EXPECT_EQ(read_back.pattern(), "*-*-");
  EXPECT_EQ(part<nn::MlpSpec>(read_back, 0, 1).width, 128);
  EXPECT_TRUE(read_back.tied);
  EXPECT_EQ(read_back.positions_max, 50);
  for (const auto& [key, usual] : {std::pair{"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}}) {
    c[key] = usual;
    EXPECT_EQ(refusal(c), "");
    c[key] = !usual;
    EXPECT_NE(refusal(c).find(fmt::format("{} is not supported", key)), std::string::npos) << refusal(c);
    c.erase(key);
  }
  c["n_head"] = 5;
  EXPECT_NE(refusal(c).find("n_head"), std::string::npos);
}

Object raven() {
  return {{"architectures", {"RavenForCausalLM"}},
          {"model_type", "huginn_raven"},
          {"vocab_size", 60},
          {"padded_vocab_size", 64},
          {"n_embd", 24},
          {"n_heads", 2},
          {"block_size", 50},
          {"intermediate_size", 40},
          {"norm_eps", 1e-6},
          {"n_layers_in_prelude", 2},
          {"n_layers_in_recurrent_block", 3},
          {"n_layers_in_coda", 1},
          {"mean_recurrence", 8},
          {"mean_backprop_depth", 4}};
}

TEST(Raven, LayersOfTheCoreAreALoop) {
  const Config c = read(raven());
  EXPECT_EQ(c.pattern(), "*-*-*-*-*-*-");
  ASSERT_TRUE(c.loop);
  EXPECT_EQ(c.loop->begin, 2u);
  EXPECT_EQ(c.loop->end, 5u);
  EXPECT_EQ(c.loop->steps, 8);
  EXPECT_EQ(c.loop->backward_steps, 4);
  EXPECT_EQ(c.runs_of(1), 1);
  EXPECT_EQ(c.runs_of(2), 8);
  EXPECT_EQ(c.runs_of(5), 1);
  EXPECT_EQ(c.vocab, 64);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.positions_limit(), 50);
  EXPECT_TRUE(c.rope->adjacent);
  EXPECT_EQ(c.rope->options.theta, 50000);  // where config.json does not say
  EXPECT_EQ(c.layers[5].parts[1].after, "transformer.coda.0.norm_4");
  EXPECT_TRUE(part<nn::AttentionSpec>(c, 0).qk_bias);
  EXPECT_FALSE(read(hybrid()).loop);
}

TEST(Raven, RefusesByName) {
  for (const auto& [key, value] : std::vector<std::pair<const char*, Object>>{{"injection_type", "add"},
                                                                              {"nonlin_name", "GELU"},
                                                                              {"block_class_name", "PostNormBlock"},
                                                                              {"bias", true},
                                                                              {"test_time_noise", 0.1},
                                                                              {"n_heads", 5},
                                                                              {"num_key_value_heads", 1},
                                                                              {"mean_recurrence", 0},
                                                                              {"n_layers_in_recurrent_block", 0},
                                                                              {"mean_backprop_depth", 2000}}) {
    Object c = raven();
    c[key] = value;
    const std::string text = refusal(c);
    EXPECT_NE(text.find(std::string_view(key) == "n_heads" ? "n_embd" : key), std::string::npos) << key << ": " << text;
  }
}

TEST(Config, EndTokensAreOneOrMany) {
  Object c = dense("llama");
  EXPECT_TRUE(read(c).eos.empty());
  c["eos_token_id"] = 2;
  EXPECT_EQ(read(c).eos, std::vector<int64_t>{2});
  c["eos_token_id"] = {2, 8, 9};
  EXPECT_EQ(read(c).eos, (std::vector<int64_t>{2, 8, 9}));
  c["eos_token_id"] = -1;  // none
  EXPECT_TRUE(read(c).eos.empty());
  c["eos_token_id"] = {-1, 8};
  EXPECT_EQ(read(c).eos, std::vector<int64_t>{8});
  EXPECT_FALSE(read(c).bos);
  c["bos_token_id"] = 1;
  EXPECT_EQ(read(c).bos, 1);
}

}  // namespace
}  // namespace braid::models
