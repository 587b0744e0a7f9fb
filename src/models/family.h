// The families Braid knows. To add one: a file in families/ and a row in family.cc.
#pragma once
#include <string>

#include "io/json.h"
#include "models/config.h"

namespace braid::models {

struct Family {
  const char* architecture;  // as in config.json "architectures"
  const char* model_type;
  Config (*read)(const io::Json& config);
};

// The family of a config.json and its Config. Error for an unknown architecture (lists the known) or an impossible
// value, naming its key.
Config read_config(const io::Json& json);

Config read_nemotron_h(const io::Json& json);
Config read_llama(const io::Json& json);  // also Qwen3 and Qwen3-MoE
Config read_nemotron(const io::Json& json);
Config read_nemotron_nas(const io::Json& json);
Config read_gpt2(const io::Json& json);
Config read_raven(const io::Json& json);

// The entries that all transformer families share.
struct Ranges {
  static constexpr io::IntRange width{1, int64_t{1} << 20}, vocab{1, int64_t{1} << 24}, heads{1, 1 << 14},
      head_dim{1, 1 << 12}, layers{1, 1024}, experts{1, 1 << 14}, positions{1, int64_t{1} << 40},
      token{0, (int64_t{1} << 31) - 1};
};
int64_t need_int(const io::Json& json, io::Keys keys, io::IntRange range);
int64_t int_or(const io::Json& json, io::Keys keys, io::IntRange range, int64_t otherwise);
double number_or(const io::Json& json, io::Keys keys, io::NumberRange range, double otherwise);
bool bool_or(const io::Json& json, io::Keys keys, bool otherwise);
// rope_theta, rope_scaling or rope_parameters; `partial` is the rotated part of a head.
nn::RopeSpec read_rope(const io::Json& json, int64_t head_dim);
Act read_act(const io::Json& json, io::Keys keys, Act otherwise);
// heads, kv heads and head width, checked against each other.
nn::AttentionSpec read_attention(const io::Json& json, int64_t hidden);
// vocabulary, width, positions, tied head, bos and eos.
Config read_common(const io::Json& json, const char* family);
// pad_token_id where it is a row of the embedding.
std::optional<int64_t> read_padding(const io::Json& json, int64_t vocab);
// Embedding, final norm and head as Llama spells them.
void name_like_llama(Config& config);

}  // namespace braid::models
