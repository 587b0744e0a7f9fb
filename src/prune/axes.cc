#include "prune/axes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>

#include "sys/error.h"

namespace braid::prune {
namespace {

using models::BlockSpec;
using models::Config;
using models::LayerSpec;
using models::PartSpec;

constexpr const char* kNames[] = {"hidden",  "ffn",        "heads",      "kv_groups", "mamba_heads", "mamba_head_dim",
                                  "experts", "expert_ffn", "shared_ffn", "latent",    "layers"};
static_assert(std::size(kNames) == kAxes);

// Widths stay multiples of 16, the block of NVFP4, and of more where there are many; what is not a multiple of 16 stays
// one of the power of two, up to 8, that divides it.
int64_t step_of(int64_t width) {
  int64_t step = 1;
  while (step < 16 && width % (2 * step) == 0) step *= 2;
  while (step >= 16 && step < 256 && width % (2 * step) == 0 && width / (2 * step) >= 16) step *= 2;
  return step;
}

int64_t least_experts(const nn::MoeSpec& m) {
  const int64_t in_groups = (m.top_k + m.topk_group - 1) / m.topk_group * m.n_group;
  return std::max({m.top_k, in_groups, m.n_group > 1 ? 2 * m.n_group : 1});
}

template <class Of>
void each_block(const Config& config, Of&& of) {
  models::each_part(config, [&](const PartSpec& part) { std::visit(of, part.block); });
}

// The largest size of every axis, and what the blocks have in common.
struct Survey {
  Sizes full{};
  int64_t head_step = 1, expert_step = 1, experts_least = 1, attention = 0;
  bool alike = true;  // all attention blocks have the same heads

  void raise(Axis a, int64_t size) { full[a] = std::max(full[a], size); }
  void operator()(const nn::Mamba2Spec& m) {
    raise(Axis::mamba_heads, m.heads);
    raise(Axis::mamba_head_dim, m.head_dim);
    head_step = m.groups;
  }
  void operator()(const nn::AttentionSpec& a) {
    const int64_t per_key = a.heads / a.kv_heads;
    alike = alike && (attention == 0 || (per_key == full[Axis::heads] && a.kv_heads == full[Axis::kv_groups]));
    ++attention;
    raise(Axis::heads, per_key);
    raise(Axis::kv_groups, a.kv_heads);
  }
  void operator()(const nn::MlpSpec& f) { raise(Axis::ffn, f.width); }
  void operator()(const nn::MoeSpec& m) {
    raise(Axis::experts, m.experts);
    raise(Axis::expert_ffn, m.width);
    raise(Axis::shared_ffn, m.shared_width);
    raise(Axis::latent, m.latent);
    expert_step = std::max(expert_step, m.n_group);
    experts_least = std::max(experts_least, least_experts(m));
  }
  void operator()(const models::LinearSpec&) {}
};

Survey survey_of(const Config& config) {
  Survey s;
  each_block(config, [&s](const auto& spec) { s(spec); });
  s.full[Axis::hidden] = config.hidden;
  s.full[Axis::layers] = std::ssize(config.layers);
  return s;
}

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

const char* name_of(Axis axis) { return kNames[static_cast<size_t>(axis)]; }

std::array<AxisRange, kAxes> axes_of(const Config& config, const Floors& floors) {
  const Survey s = survey_of(config);
  std::array<AxisRange, kAxes> list;
  for (size_t i = 0; i < kAxes; ++i) {
    AxisRange& r = list[i];
    r.axis = static_cast<Axis>(i);
    r.full = s.full[r.axis];
    const bool depth = r.axis == Axis::layers;
    if (depth || r.axis == Axis::heads || r.axis == Axis::kv_groups) {
      r.step = 1;
    } else if (r.axis == Axis::mamba_heads) {
      r.step = s.head_step;
    } else if (r.axis == Axis::experts) {
      r.step = s.expert_step * (r.full >= 64 * s.expert_step ? 8 : 1);
    } else {
      r.step = step_of(r.full);
    }
    const double share = depth ? floors.depth : floors.width;
    r.least = std::max(r.step, round_up(static_cast<int64_t>(std::ceil(static_cast<double>(r.full) * share)), r.step));
    if (r.axis == Axis::experts) r.least = std::max(r.least, round_up(s.experts_least, r.step));
    if (r.full == 0) {
      r.why = "the model has none";
    } else if (config.learned_positions > 0 && (r.axis == Axis::hidden || r.axis == Axis::heads)) {
      r.why = "the family derives the width of a head from it";
    } else if ((r.axis == Axis::heads || r.axis == Axis::kv_groups) && !s.alike) {
      r.why = "its layers have different numbers of heads";
    } else if (r.axis == Axis::kv_groups && (config.learned_positions > 0 || config.family == "nemotron-nas")) {
      r.why = "the family has no number of key heads that could change";
    } else if (r.least >= r.full) {
      r.why = fmt::format("{} in multiples of {}, of which at least {} stay", r.full, r.step, r.least);
    }
  }
  return list;
}

std::vector<Axis> parse_axes(const std::string& text, const std::array<AxisRange, kAxes>& ranges) {
  std::vector<Axis> axes;
  if (text.empty()) {
    for (const AxisRange& r : ranges) {
      if (r.why.empty()) axes.push_back(r.axis);
    }
    if (axes.empty())
      fail("prune", {.what = "the model cannot be cut along any axis", .hint = "braid prune --pattern"});
    return axes;
  }
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const auto* found =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const char* name) { return word == name; });
    if (found == std::end(kNames))
      fail("--axes", {.what = "no such axis",
                      .got = printable(word),
                      .expected = fmt::format("some of {}", fmt::join(kNames, ", "))});
    const AxisRange& r = ranges[static_cast<size_t>(found - std::begin(kNames))];
    if (!r.why.empty()) fail("--axes", {.what = fmt::format("this model cannot be cut along {}", word), .got = r.why});
    if (std::find(axes.begin(), axes.end(), r.axis) == axes.end()) axes.push_back(r.axis);
  }
  return axes;
}

Sizes full_sizes(const Config& config) { return survey_of(config).full; }

Resizer::Resizer(const Config& config, const Sizes& sizes) : Resizer(full_sizes(config), sizes) {}
Resizer::Resizer(const Sizes& full, const Sizes& sizes) : sizes_(sizes), full_(full) {
  hidden_ = width(Axis::hidden, full_[Axis::hidden]);
}

int64_t Resizer::width(Axis axis, int64_t own) const {
  const int64_t wanted = sizes_[axis], full = full_[axis];
  if (wanted == 0 || wanted == full || own == 0) return own;
  if (own == full) return wanted;
  const int64_t step = step_of(own);
  return std::max(step, own * wanted / full / step * step);
}

int64_t Resizer::units(Axis axis, int64_t own, int64_t step, int64_t least) const {
  const int64_t wanted = sizes_[axis], full = full_[axis];
  if (wanted == 0 || wanted == full) return own;
  if (own == full) return wanted;
  return std::clamp(own * wanted / full / step * step, std::min(own, round_up(least, step)), own);
}

BlockSpec Resizer::operator()(const BlockSpec& spec) const {
  BlockSpec copy = spec;
  std::visit([this](auto& s) { s.hidden = hidden_; }, copy);
  if (auto* m = std::get_if<nn::Mamba2Spec>(&copy)) {
    m->heads = units(Axis::mamba_heads, m->heads, m->groups, m->groups);
    m->head_dim = width(Axis::mamba_head_dim, m->head_dim);
  } else if (auto* a = std::get_if<nn::AttentionSpec>(&copy)) {
    const int64_t per_key = units(Axis::heads, a->heads / a->kv_heads, 1, 1);
    a->kv_heads = units(Axis::kv_groups, a->kv_heads, 1, 1);
    a->heads = per_key * a->kv_heads;
  } else if (auto* f = std::get_if<nn::MlpSpec>(&copy)) {
    f->width = width(Axis::ffn, f->width);
  } else if (auto* e = std::get_if<nn::MoeSpec>(&copy)) {
    e->experts = units(Axis::experts, e->experts, e->n_group, least_experts(*e));
    e->width = width(Axis::expert_ffn, e->width);
    e->shared_width = width(Axis::shared_ffn, e->shared_width);
    e->latent = width(Axis::latent, e->latent);
  }
  return copy;
}

Config resized(const Config& config, const Sizes& sizes, std::span<const int64_t> layers) {
  const Resizer resizer(config, sizes);
  Config small = config;
  small.hidden = resizer.hidden();
  small.layers.clear();
  for (const int64_t l : layers) small.layers.push_back(config.layers[static_cast<size_t>(l)]);
  models::each_part(small, [&](PartSpec& part) { part.block = resizer(part.block); });
  return small;
}

}  // namespace braid::prune
