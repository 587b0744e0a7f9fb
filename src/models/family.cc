#include "models/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sys/error.h"

namespace braid::models {
namespace {

constexpr Family kFamilies[] = {
    {"NemotronHForCausalLM", "nemotron_h", &read_nemotron_h},
    {"NemotronHPuzzleForCausalLM", "nemotron_h_puzzle", &read_nemotron_h},
    {"DeciLMForCausalLM", "nemotron-nas", &read_nemotron_nas},
    {"NemotronForCausalLM", "nemotron", &read_nemotron},
    {"LlamaForCausalLM", "llama", &read_llama},
    {"Qwen3ForCausalLM", "qwen3", &read_llama},
    {"Qwen3MoeForCausalLM", "qwen3_moe", &read_llama},
    {"GPT2LMHeadModel", "gpt2", &read_gpt2},
    {"RavenForCausalLM", "huginn_raven", &read_raven},
};

// Names of the blocks' parameters in all families but one; a family's blocks determine which of them it has.
constexpr const char* kQ = "num_attention_heads * head_dim, hidden_size";
constexpr const char* kKv = "num_key_value_heads * head_dim, hidden_size";
constexpr const char* kHeads = "mamba_num_heads";
constexpr const char* kExperts = "moe_intermediate_size, moe_latent_size or hidden_size";
constexpr nn::Spelling::Name kNames[] = {
    {ParamRole::q, "q_proj.weight", kQ},
    {ParamRole::k, "k_proj.weight", kKv},
    {ParamRole::v, "v_proj.weight", kKv},
    {ParamRole::attention_out, "o_proj.weight", "hidden_size, num_attention_heads * head_dim"},
    {ParamRole::q_norm, "q_norm.weight", "head_dim"},
    {ParamRole::k_norm, "k_norm.weight", "head_dim"},
    {ParamRole::linear_attention, "linear_attn.weight", "hidden_size"},
    {ParamRole::mamba_in, "in_proj.weight",
     "2 * mamba_num_heads * mamba_head_dim + 2 * n_groups * ssm_state_size + mamba_num_heads, hidden_size"},
    {ParamRole::conv, "conv1d.weight", "mamba_num_heads * mamba_head_dim + 2 * n_groups * ssm_state_size, conv_kernel"},
    {ParamRole::a_log, "A_log", kHeads},
    {ParamRole::d_skip, "D", kHeads},
    {ParamRole::dt_bias, "dt_bias", kHeads},
    {ParamRole::gated_norm, "norm.weight", "mamba_num_heads * mamba_head_dim"},
    {ParamRole::mamba_out, "out_proj.weight", "hidden_size, mamba_num_heads * mamba_head_dim"},
    {ParamRole::up, "up_proj.weight", "intermediate_size, hidden_size"},
    {ParamRole::gate, "gate_proj.weight", "intermediate_size, hidden_size"},
    {ParamRole::down, "down_proj.weight", "intermediate_size, hidden_size"},
    {ParamRole::linear_mlp, "linear_mlp.weight", "hidden_size"},
    {ParamRole::router, "gate.weight", "n_routed_experts, hidden_size"},
    {ParamRole::router_bias, "gate.e_score_correction_bias", "n_routed_experts"},
    {ParamRole::expert_up, "experts.up_proj", kExperts},
    {ParamRole::expert_gate, "experts.gate_proj", kExperts},
    {ParamRole::expert_down, "experts.down_proj", kExperts},
    {ParamRole::latent_in, "fc1_latent_proj.weight", "moe_latent_size, hidden_size"},
    {ParamRole::latent_out, "fc2_latent_proj.weight", "hidden_size, moe_latent_size"},
    {ParamRole::mtp_in, "eh_proj.weight", "hidden_size, 2 * hidden_size"}};
constexpr nn::Spelling kSpelling{
    .names = kNames, .shared = "shared_experts.", .shared_keys = "moe_shared_expert_intermediate_size, hidden_size"};

const Family* find_family(const io::Json& json) {
  if (const auto list = json.get({"architectures"})) {
    for (const io::Json& name : list->items()) {
      for (const Family& family : kFamilies) {
        if (name.as_string() == family.architecture) return &family;
      }
    }
  }
  const auto type = json.string_of({"model_type"});
  for (const Family& family : kFamilies) {
    if (type && *type == family.model_type) return &family;
  }
  return nullptr;
}

std::string architecture_of(const io::Json& json) {
  if (const auto list = json.get({"architectures"}); list && list->is_array() && !list->items().empty())
    return list->items()[0].as_string();
  return json.string_of({"model_type"}).value_or("nothing");
}

// Which one, if the config is of those that objective = "graph" writes (train/graph_weights.h); else empty.
std::string graph_network_of(const io::Json& json) {
  const auto model = json.get({"model"}), task = json.get({"task"});
  const bool is = model && model->is_string() && task && task->is_string() && json.get({"classes"});
  return is ? model->as_string() : "";
}

}  // namespace

Config read_config(const io::Json& json) {
  const Family* family = find_family(json);
  if (!family) {
    if (const std::string network = graph_network_of(json); !network.empty())
      fail(json.document(), {.what = "is a graph network, not a language model",
                             .got = printable(network),
                             .hint = "braid eval with its folder"});
    std::string known;
    for (const Family& f : kFamilies) known += fmt::format("{}{}", known.empty() ? "" : ", ", f.architecture);
    fail(json.document(),
         {.what = "unknown architecture", .got = printable(architecture_of(json)), .expected = "one of " + known});
  }
  Config config = family->read(json);
  config.architecture = family->architecture;
  return config;
}

int64_t need_int(const io::Json& json, io::Keys keys, io::IntRange range) {
  const auto value = json.int_of(keys, range);
  return value ? *value : json.need(keys).as_int(range);
}
int64_t int_or(const io::Json& json, io::Keys keys, io::IntRange range, int64_t otherwise) {
  return json.int_of(keys, range).value_or(otherwise);
}
double number_or(const io::Json& json, io::Keys keys, io::NumberRange range, double otherwise) {
  return json.number_of(keys, range).value_or(otherwise);
}
bool bool_or(const io::Json& json, io::Keys keys, bool otherwise) { return json.bool_of(keys).value_or(otherwise); }

void need_usual(const io::Json& json, std::initializer_list<Usual> usual, const std::string& hint) {
  const auto refuse = [&](const Usual& u, std::string expected) {
    json.need({u.key}).refuse("is not supported", std::move(expected), hint);
  };
  for (const Usual& u : usual) {
    if (const auto* flag = std::get_if<bool>(&u.value)) {
      if (bool_or(json, {u.key}, *flag) != *flag) refuse(u, *flag ? "true" : "false");
    } else if (const auto* number = std::get_if<double>(&u.value)) {
      if (json.number_of({u.key}).value_or(*number) != *number) refuse(u, fmt::format("{}", *number));
    } else {
      const std::string text(std::get<std::string_view>(u.value));
      if (json.string_of({u.key}).value_or(text) != text) refuse(u, text);
    }
  }
}

void need_absent(const io::Json& json, std::initializer_list<std::string_view> keys, const std::string& hint) {
  for (const std::string_view key : keys) {
    const auto value = json.get({key});
    if (value && !(value->is_array() && value->items().empty())) value->refuse("is not supported", "null", hint);
  }
}

namespace {

constexpr io::NumberRange kPositive{1e-6, 1e12};
constexpr const char* kOriginal = "original_max_position_embeddings";

void read_yarn(const io::Json& json, const io::Json& inner, RopeOptions& o) {
  const auto longest = json.number_of({"max_position_embeddings"}, kPositive);
  const auto outer = json.number_of({kOriginal}, kPositive);  // transformers prefers it
  const auto original = outer ? outer : inner.number_of({kOriginal}, kPositive);
  if (!original && !longest) inner.need({kOriginal});
  o.scaling = RopeScaling::yarn;
  o.original_max_position_embeddings = original ? *original : *longest;
  if (!inner.get({"factor"}) && longest) o.factor = *longest / o.original_max_position_embeddings;
  const auto or_usual = [&](const char* key, double usual) {
    const double value = number_or(inner, {key}, {0, 1e12}, usual);
    return value > 0 ? value : usual;
  };
  o.beta_fast = or_usual("beta_fast", 32);
  o.beta_slow = or_usual("beta_slow", 1);
  o.truncate = bool_or(inner, {"truncate"}, true);
  if (o.theta <= 1) inner.refuse("has a base that YaRN cannot scale", "rope_theta above 1");
  const double scale = number_or(inner, {"mscale"}, {0, 1e6}, 0),
               all = number_or(inner, {"mscale_all_dim"}, {0, 1e6}, 0);
  const double usual = scale > 0 && all > 0
                           ? yarn_attention_factor(o.factor, scale) / yarn_attention_factor(o.factor, all)
                           : yarn_attention_factor(o.factor);
  o.attention_factor = number_or(inner, {"attention_factor"}, {1e-6, 1e6}, usual);
}

}  // namespace

nn::RopeSpec read_rope(const io::Json& json, int64_t head_dim, std::optional<double> partial) {
  // transformers 5 has everything in rope_parameters; older versions have the base next to rope_scaling.
  const auto params = json.get({"rope_parameters", "rope_scaling"});
  const io::Json& inner = params ? *params : json;
  nn::RopeSpec rope;
  const std::string type = inner.string_of({"rope_type", "type"}).value_or("default");
  const double part =
      number_or(inner, {"partial_rotary_factor"}, {0.01, 1},
                number_or(json, {"partial_rotary_factor", "rope_percent"}, {0.01, 1}, partial.value_or(1)));
  if (partial) {
    rope.dim = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  } else {
    // Scaled frequencies of a part do not fit the heads, in transformers neither; those without scaling ignore it.
    if (part != 1 && type != "default")
      (inner.get({"partial_rotary_factor"}) ? inner : json)
          .need({"partial_rotary_factor", "rope_percent"})
          .refuse("is not supported with scaled RoPE", "1");
    rope.dim = int_or(json, {kRotaryDim}, {2, head_dim}, head_dim);
  }
  // Of an odd number transformers turns one value more, by angles of the odd number.
  if (rope.dim % 2 != 0)
    fail(json.document(), {.what = "rotates an odd number of values of a head",
                           .got = fmt::format("{} of {} (head_dim, partial_rotary_factor)", rope.dim, head_dim),
                           .expected = "an even number"});
  RopeOptions& o = rope.options;
  o.theta = number_or(inner, {"rope_theta"}, kPositive, number_or(json, {"rope_theta"}, kPositive, 10000.0));
  if (type == "default") return rope;
  if (type == "dynamic") {  // the usual frequencies, up to where the length of a sequence begins to change them
    rope.positions_max = need_int(json, {"max_position_embeddings", "n_positions"}, Ranges::positions);
    return rope;
  }
  o.factor = number_or(inner, {"factor"}, kPositive, 1.0);
  if (type == "linear") {
    o.scaling = RopeScaling::linear;
  } else if (type == "llama3") {
    o.scaling = RopeScaling::llama3;
    o.low_freq_factor = number_or(inner, {"low_freq_factor"}, kPositive, 1.0);
    o.high_freq_factor = number_or(inner, {"high_freq_factor"}, kPositive, 4.0);
    o.original_max_position_embeddings = inner.need({kOriginal}).as_number(kPositive);
  } else if (type == "yarn") {
    read_yarn(json, inner, o);
  } else {
    inner.need({"rope_type", "type"}).refuse("unknown RoPE scaling", "default, linear, llama3, yarn or dynamic");
  }
  return rope;
}

Act read_act(const io::Json& json, io::Keys keys, Act otherwise) {
  const auto name = json.string_of(keys);
  if (!name) return otherwise;
  if (*name == "relu2") return Act::relu2;
  if (*name == "silu" || *name == "swish") return Act::silu;
  if (*name == "gelu_new" || *name == "gelu_pytorch_tanh") return Act::gelu_tanh;
  if (*name == "gelu") return Act::gelu;
  if (*name == "relu") return Act::relu;
  json.need(keys).refuse("unknown activation", "relu2, relu, silu, gelu or gelu_new");
}

void need_act(const io::Json& json, io::Keys keys, Act only, const std::string& name) {
  if (read_act(json, keys, only) != only) json.need(keys).refuse("is not supported here", name);
}

nn::AttentionSpec read_attention(const io::Json& json, int64_t hidden) {
  nn::AttentionSpec spec;
  spec.hidden = hidden;
  spec.heads = need_int(json, {"num_attention_heads"}, Ranges::heads);
  spec.kv_heads = int_or(json, {"num_key_value_heads"}, Ranges::heads, spec.heads);
  spec.head_dim =
      int_or(json, {"head_dim", "attention_head_dim"}, Ranges::head_dim, std::max<int64_t>(1, hidden / spec.heads));
  spec.bias = spec.out_bias = bool_or(json, {"attention_bias"}, false);
  if (spec.heads % spec.kv_heads != 0) {
    json.need({"num_key_value_heads"})
        .refuse("does not divide num_attention_heads", fmt::format("a divisor of {}", spec.heads));
  }
  return spec;
}

void add_ends(const io::Json& json, std::vector<int64_t>& ends) {
  const auto eos = json.get({"eos_token_id"});
  if (!eos) return;
  for (const io::Json& id : eos->is_array() ? eos->items() : std::vector<io::Json>{*eos}) {
    const int64_t token = id.as_int({std::numeric_limits<int32_t>::min(), Ranges::token.max});
    if (token >= 0 && std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
  }
}

Config read_common(const io::Json& json, const char* family) {
  Config c;
  c.family = family;
  c.spelling = &kSpelling;
  c.vocab = need_int(json, {"vocab_size"}, Ranges::vocab);
  c.hidden = need_int(json, {"hidden_size", "n_embd"}, Ranges::width);
  c.positions_max = int_or(json, {"max_position_embeddings", "n_positions"}, Ranges::positions, 0);
  c.tied = bool_or(json, {"tie_word_embeddings"}, false);
  c.dropout.attention = static_cast<float>(number_or(json, {"attention_dropout"}, {0, 0.99}, 0));
  c.bos = json.int_of({"bos_token_id"}, Ranges::token);
  add_ends(json, c.eos);
  return c;
}

std::optional<int64_t> read_padding(const io::Json& json, int64_t vocab) {
  const auto id = json.int_of({"pad_token_id"});
  return id && *id >= 0 && *id < vocab ? id : std::nullopt;
}

void name_like_llama(Config& config) {
  config.embedding = "model.embed_tokens.weight";
  config.final_norm = "model.norm";
  config.head = "lm_head.weight";
}

}  // namespace braid::models
