#include "plan/floor.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "math/codes_dot.h"

namespace braid::plan {
namespace {

double as_double(int64_t n) { return static_cast<double>(n); }

// What every layer's blocks move and compute besides their weights.
struct BlockWork {
  const Pass& pass;
  double tokens;

  Work operator()(const nn::Mamba2Spec& s) const {
    const double state = as_double(s.inner() * s.state);
    const nn::StateShape shape{.conv_columns = s.conv_width - 1,
                               .conv_channels = s.conv_channels(),
                               .heads = s.heads,
                               .head_dim = s.head_dim,
                               .state = s.state};
    const bool step = pass.tokens <= 8;
    // A pass reads and writes the state once per sequence; the chunk form also computes over half a chunk of
    // neighbours.
    const double bytes = as_double(2 * pass.sequences * shape.fixed_bytes(pass.caches.ssm));
    const double neighbours =
        step ? 0 : as_double(std::min(s.chunk, pass.tokens)) * (as_double(s.inner()) + as_double(s.groups * s.state));
    return {.kind = WorkKind::state, .what = "state", .bytes = bytes, .flops = tokens * (4 * state + neighbours)};
  }
  Work operator()(const nn::AttentionSpec& s) const {
    const double seen = as_double(pass.depth) + as_double(pass.tokens + 1) / 2;  // mean over the new tokens
    const nn::StateShape cache{.kv_heads = s.kv_heads, .kv_dim = s.head_dim};
    const double bytes =
        as_double(pass.sequences * (pass.depth + pass.tokens) * cache.kv_bytes_per_token(pass.caches.kv));
    return {.kind = WorkKind::keys_and_values,
            .what = "keys and values",
            .bytes = bytes,
            .flops = tokens * 4 * as_double(s.heads * s.head_dim) * seen};
  }
  Work operator()(const nn::MlpSpec&) const { return {}; }
  Work operator()(const nn::MoeSpec&) const { return {}; }
  Work operator()(const models::LinearSpec&) const { return {}; }
};

struct Experts {
  double share = 1;        // of all experts, those that some token of the pass is expected to choose
  double tokens_each = 0;  // mean tokens of one expert
};

// Uniform routing: a token does not choose an expert with probability 1 - k/E.
Experts experts_of(const nn::MoeSpec& s, double tokens) {
  const double chosen = as_double(s.top_k) / as_double(s.experts);
  return {1 - std::pow(1 - chosen, tokens), tokens * chosen};
}

}  // namespace

std::vector<Work> work_of(models::Model& model, const Pass& pass) {
  const models::Config& config = model.config();
  const double tokens = as_double(pass.tokens * pass.sequences);
  std::map<int, Experts> moe;  // by layer
  std::vector<Work> list;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    for (const models::PartSpec& part : config.layers[i].parts) {
      if (const auto* spec = std::get_if<nn::MoeSpec>(&part.block))
        moe[static_cast<int>(i)] = experts_of(*spec, tokens);
      Work own = std::visit(BlockWork{pass, tokens}, part.block);
      if (own.bytes <= 0) continue;
      own.bytes *= as_double(config.runs_of(i)), own.flops *= as_double(config.runs_of(i));
      own.what = "layer " + std::to_string(i) + ": " + own.what;
      list.push_back(std::move(own));
    }
  }
  std::map<int, Work> routed;
  for (const Param* p : model.params()) {
    if (p->mtp) continue;  // not part of this pass
    // What a loop of layers reads in one step is no longer in a cache in the next, as a rule.
    const double runs = p->layer < 0 ? 1 : as_double(config.runs_of(static_cast<size_t>(p->layer))),
                 bytes = runs * as_double(p->value.product_bytes()),
                 flops = runs * 2 * as_double(p->value.product_values()), whole = codes::refusal(p->value) ? 0 : flops;
    if (p->experts > 0) {
      Work& w = routed[p->layer];
      w.kind = WorkKind::experts;
      w.what = "layer " + std::to_string(p->layer) + ": experts";
      w.bytes += bytes * moe[p->layer].share;
      w.flops += flops * moe[p->layer].tokens_each;
      w.whole += whole * moe[p->layer].tokens_each;
      continue;
    }
    const bool is_embedding = p->role == ParamRole::embedding || p->role == ParamRole::positions;
    const bool is_head = p->role == ParamRole::head || (config.tied && p->role == ParamRole::embedding);
    Work w{.what = p->name};
    if (is_embedding) w.bytes += bytes / as_double(p->value.rows) * tokens;
    const double rows = is_head ? as_double(pass.logits_rows) : is_embedding || p->value.rows == 1 ? 0 : tokens;
    if (is_head ? pass.logits_rows > 0 : !is_embedding) w.bytes += bytes;
    w.flops = flops * rows, w.whole = whole * rows;
    list.push_back(std::move(w));
  }
  for (auto& entry : routed) list.push_back(std::move(entry.second));
  return list;
}

Work total(const std::vector<Work>& list) {
  Work sum{.what = "total"};
  for (const Work& w : list) {
    sum.bytes += w.bytes;
    sum.flops += w.flops;
    sum.whole += w.whole;
  }
  return sum;
}

double floor_seconds(const Work& sum, const Rates& rates) {
  return std::max(sum.bytes / rates.read, (sum.flops - sum.whole) / rates.real + sum.whole / rates.whole);
}

}  // namespace braid::plan
