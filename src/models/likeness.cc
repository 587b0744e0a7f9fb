#include "models/likeness.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "io/json.h"
#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::models {
namespace fs = std::filesystem;
namespace {

struct Fact {
  std::string name, value;
};

// Collects what is compared, in the order in which differences are to be named.
class Facts {
 public:
  template <class Value>
  void add(const char* name, const Value& value) {
    list_.push_back({fmt::format("{}{}", place_, name), fmt::format("{}", value)});
  }
  void at(std::string place) { place_ = std::move(place); }
  const std::vector<Fact>& list() const { return list_; }

 private:
  std::string place_;
  std::vector<Fact> list_;
};

const char* act_name(Act act) {
  constexpr std::array kActNames = {"relu2", "silu", "gelu_tanh", "gelu", "relu", "elu"};
  return kActNames[static_cast<size_t>(act)];
}

void add_block(Facts& facts, const nn::Mamba2Spec& s) {
  facts.add("heads", s.heads);
  facts.add("head_dim", s.head_dim);
  facts.add("state", s.state);
  facts.add("groups", s.groups);
  facts.add("conv_width", s.conv_width);
  facts.add("eps", s.eps);
  facts.add("time_step_min", s.dt_min);
  facts.add("time_step_max", s.dt_max);
}

void add_block(Facts& facts, const nn::AttentionSpec& s) {
  facts.add("heads", s.heads);
  facts.add("kv_heads", s.kv_heads);
  facts.add("head_dim", s.head_dim);
  facts.add("qk_norm", s.qk_norm);
  facts.add("eps", s.eps);
}

void add_block(Facts& facts, const nn::MlpSpec& s) {
  facts.add("width", s.width);
  facts.add("activation", act_name(s.act));
  facts.add("gated", s.gated);
}

void add_block(Facts& facts, const nn::MoeSpec& s) {
  facts.add("experts", s.experts);
  facts.add("top_k", s.top_k);
  facts.add("width", s.width);
  facts.add("latent", s.latent);
  facts.add("shared_width", s.shared_width);
  facts.add("gated", s.gated);
  facts.add("router", s.router == RouterKind::sigmoid ? "sigmoid" : "softmax");
  facts.add("n_group", s.n_group);
  facts.add("topk_group", s.topk_group);
  facts.add("normalise", s.normalise);
  facts.add("scale", s.scale);
}

void add_block(Facts&, const LinearSpec&) {}

// Layers of the same kinds of blocks.
void add_layers(Facts& facts, const char* what, const std::vector<LayerSpec>& layers) {
  std::string letters;
  for (const LayerSpec& layer : layers) {
    for (const PartSpec& part : layer.parts) letters += letter_of(part.block);
    letters += '/';
  }
  facts.at("");
  facts.add(what, letters);
  for (size_t i = 0; i < layers.size(); ++i) {
    facts.at(fmt::format("{} {}: ", what, i));
    for (const PartSpec& part : layers[i].parts) {
      facts.add("norm behind the block", !part.after.empty());
      std::visit([&](const auto& spec) { add_block(facts, spec); }, part.block);
    }
  }
  facts.at("");
}

void add_rope(Facts& facts, const std::optional<nn::RopeSpec>& rope) {
  facts.add("rotary encoding", rope.has_value());
  if (!rope) return;
  const RopeOptions& o = rope->options;
  facts.add("rotated channels", rope->dim);
  facts.add("pairs of neighbouring channels", rope->adjacent);
  facts.add("rope_theta", o.theta);
  facts.add("rope_type", o.scaling == RopeScaling::none     ? "default"
                         : o.scaling == RopeScaling::linear ? "linear"
                         : o.scaling == RopeScaling::llama3 ? "llama3"
                                                            : "yarn");
  if (o.scaling == RopeScaling::none) return;
  facts.add("rope factor", o.factor);
  if (o.scaling == RopeScaling::linear) return;
  facts.add("original_max_position_embeddings", o.original_max_position_embeddings);
  if (o.scaling == RopeScaling::llama3) {
    facts.add("low_freq_factor", o.low_freq_factor);
    facts.add("high_freq_factor", o.high_freq_factor);
    return;
  }
  facts.add("beta_fast", o.beta_fast);
  facts.add("beta_slow", o.beta_slow);
  facts.add("truncate", o.truncate);
  facts.add("attention_factor", o.attention_factor);
}

std::vector<Fact> facts_of(const Config& c, bool mtp) {
  Facts facts;
  facts.add("family", c.family);
  facts.add("vocab_size", c.vocab);
  facts.add("hidden_size", c.hidden);
  facts.add("learned positions", c.learned_positions);
  facts.add("norm", c.norm == NormKind::rms ? "rms" : c.norm == NormKind::layer ? "layer" : "layer, plus one");
  facts.add("eps", c.eps);
  facts.add("scale of the embedding", c.embedding_scale);
  facts.add("tied head", c.tied);
  add_rope(facts, c.rope);
  facts.add("recurrent depth", c.loop.has_value());
  if (c.loop) {
    facts.add("first layer of the loop", c.loop->begin);
    facts.add("layer behind the loop", c.loop->end);
    facts.add("steps of the loop", c.loop->steps);
    facts.add("standard deviation of the first state", c.loop->start_std);
  }
  add_layers(facts, "layers", c.layers);
  if (mtp) add_layers(facts, "layers of the prediction block", c.mtp->layers);
  return facts.list();
}

bool same_bytes(const fs::path& one, const fs::path& other) {
  const sys::MappedFile a(one), b(other);
  return std::ranges::equal(a.bytes(), b.bytes());
}

[[noreturn]] void refuse_token(const NamedFolder& one, const NamedFolder& other, const std::string& what,
                               const std::string& got, const std::string& expected) {
  fail(printable(other.name), {.what = fmt::format("has another vocabulary than {}: {}", printable(one.name), what),
                               .got = printable(got),
                               .expected = printable(expected)});
}

using Tokens = std::map<std::string, std::string>;  // with what the file says of each: its id, or its id and score

void add_tokens(Tokens& tokens, const io::Json& json) {
  const nlohmann::json& raw = json.raw();
  if (raw.is_object()) {
    for (const auto& [token, id] : raw.items()) tokens[token] = id.dump();
  } else if (raw.is_array()) {  // [[token, score], ...]
    for (size_t i = 0; i < raw.size(); ++i) {
      const bool pair = raw[i].is_array() && raw[i].size() == 2 && raw[i][0].is_string();
      tokens[pair ? raw[i][0].get<std::string>() : ""] +=
          fmt::format("{} {}", i, pair ? raw[i][1].dump() : raw[i].dump());
    }
  }
}

// Of a tokenizer.json, whose added tokens count like the others, or of a vocab.json.
Tokens tokens_of(const io::Json& json) {
  Tokens tokens;
  const auto model = json.get({"model"});
  if (!model || !model->is_object()) {
    add_tokens(tokens, json);
    return tokens;
  }
  if (const auto vocabulary = model->get({"vocab"})) add_tokens(tokens, *vocabulary);
  if (const auto added = json.get({"added_tokens"}); added && added->is_array()) {
    for (const io::Json& token : added->items()) {
      if (token.is_object()) tokens[token.string_of({"content"}).value_or("")] = token.need({"id"}).raw().dump();
    }
  }
  return tokens;
}

// One merge a line; older files have "a b" where newer ones have ["a", "b"].
std::vector<std::string> merges_of(const io::Json& json) {
  std::vector<std::string> lines;
  const auto model = json.get({"model"});
  if (!model || !model->is_object()) return lines;
  const auto merges = model->get({"merges"});
  if (!merges || !merges->is_array()) return lines;
  for (const io::Json& merge : merges->items()) {
    std::string line;
    if (merge.is_string()) {
      line = merge.as_string();
    } else {
      for (const io::Json& word : merge.items()) line += (line.empty() ? "" : " ") + word.as_string();
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void compare_json(const NamedFolder& one, const NamedFolder& other, const char* file) {
  const io::Json a = io::Json::read(one.folder / file), b = io::Json::read(other.folder / file);
  const Tokens want = tokens_of(a), have = tokens_of(b);
  const auto id = [](const Tokens& tokens, const std::string& token) {
    const auto found = tokens.find(token);
    return found == tokens.end() ? std::string("none") : found->second;
  };
  for (const auto& tokens : {want, have}) {
    for (const auto& entry : tokens) {
      const std::string got = id(have, entry.first), expected = id(want, entry.first);
      if (got != expected) refuse_token(one, other, "the id of " + printable(entry.first, 40), got, expected);
    }
  }
  const std::vector<std::string> first = merges_of(a), second = merges_of(b);
  const auto [x, y] = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
  if (x == first.end() && y == second.end()) return;
  refuse_token(one, other, fmt::format("merge {}", x - first.begin()), y == second.end() ? "none" : *y,
               x == first.end() ? "none" : *x);
}

}  // namespace

void need_same_function(const NamedConfig& one, const NamedConfig& other) {
  const bool mtp = one.config.mtp && other.config.mtp;
  const std::vector<Fact> want = facts_of(one.config, mtp), have = facts_of(other.config, mtp);
  const auto same = [](const Fact& a, const Fact& b) { return a.name == b.name && a.value == b.value; };
  const auto [w, h] = std::mismatch(want.begin(), want.end(), have.begin(), have.end(), same);
  if (w == want.end() && h == have.end()) return;
  // Kinds come before what only they have, so that a name differs or ends only behind a value that did.
  const Fact none{"", "none"}, &a = w == want.end() ? none : *w, &b = h == have.end() ? none : *h;
  fail(printable(other.name), {.what = fmt::format("differs from {} in {}", printable(one.name), a.name),
                               .got = printable(b.value),
                               .expected = printable(a.value)});
}

void need_same_vocabulary(const NamedFolder& one, const NamedFolder& other) {
  const auto differ = [&](const char* file) {
    const fs::path a = one.folder / file, b = other.folder / file;
    return fs::exists(a) && fs::exists(b) && !same_bytes(a, b);
  };
  const char* kTokenizer = "tokenizer.json";
  if (fs::exists(one.folder / kTokenizer) && fs::exists(other.folder / kTokenizer)) {
    if (differ(kTokenizer)) compare_json(one, other, kTokenizer);
    return;
  }
  if (differ("vocab.json")) compare_json(one, other, "vocab.json");
  for (const char* file : {"merges.txt", "tokenizer.model"}) {
    if (differ(file)) refuse_token(one, other, file, "other bytes", "the same file");
  }
}

}  // namespace braid::models
