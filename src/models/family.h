// The families Braid knows. To add one: a file in families/ and a row in family.cc.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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
// A key that changes what a model computes, and the one value of it that is implemented. Absent or null means it too.
struct Usual {
  std::string_view key;
  std::variant<bool, double, std::string_view> value;
};
// Error, naming the key, where another value is there: a model is refused rather than run as something else.
void need_usual(const io::Json& json, std::initializer_list<Usual> usual, const std::string& hint = {});
// The same for keys of which no value is implemented; an empty list counts as absent.
void need_absent(const io::Json& json, std::initializer_list<std::string_view> keys, const std::string& hint = {});
// What our reading of GGUF's rope.dimension_count calls it: Llama's own code has no such key.
inline constexpr const char* kRotaryDim = "rotary_dim";
// rope_theta, rope_scaling or rope_parameters. `partial` is the rotated part of a head where nothing says it; nothing:
// the family's code in transformers rotates whole heads, whatever partial_rotary_factor says.
nn::RopeSpec read_rope(const io::Json& json, int64_t head_dim, std::optional<double> partial = {});
Act read_act(const io::Json& json, io::Keys keys, Act otherwise);
// The same where the block has one activation, by its name.
void need_act(const io::Json& json, io::Keys keys, Act only, const std::string& name);
// heads, kv heads and head width, checked against each other.
nn::AttentionSpec read_attention(const io::Json& json, int64_t hidden);
// vocabulary, width, positions, tied head, bos and eos.
Config read_common(const io::Json& json, const char* family);
// eos_token_id, one or several; a negative one stands for none.
void add_ends(const io::Json& json, std::vector<int64_t>& ends);
// pad_token_id where it is a row of the embedding.
std::optional<int64_t> read_padding(const io::Json& json, int64_t vocab);
// Embedding, final norm and head as Llama spells them.
void name_like_llama(Config& config);

}  // namespace braid::models
