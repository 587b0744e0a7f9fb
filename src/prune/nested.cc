#include "prune/nested.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "prune/write.h"
#include "sys/error.h"

namespace braid::prune {
namespace {

using models::Config;
using nlohmann::ordered_json;

// of(block, layer) for every block.
template <class Of>
void each_block_of_layers(const Config& config, Of&& of) {
  int index = 0;
  const auto all = [&](const std::vector<models::LayerSpec>& layers) {
    for (const models::LayerSpec& layer : layers) {
      for (const models::PartSpec& part : layer.parts) of(part.block, index);
      ++index;
    }
  };
  all(config.layers);
  if (config.mtp) all(config.mtp->layers);
}

// The units of one block by importance; without scores as they are.
struct Ranker {
  const Scores* scores;
  int layer;
  LayerKeep& order;

  std::vector<int64_t> rank(Axis axis, int64_t n, int64_t groups = 1) const {
    return scores ? ranked(of(axis), groups) : in_place(n);
  }
  const std::vector<double>& of(Axis axis) const {
    const auto found = scores->of.find({axis, layer});
    CHECK(found != scores->of.end(), "no scores of {} in layer {}", name_of(axis), layer);
    return found->second;
  }
  void operator()(const nn::Mamba2Spec& m) const {
    std::vector<int64_t> channels = in_place(m.head_dim), heads = in_place(m.heads);
    if (scores) {
      const std::vector<int64_t> all = channels;
      channels = ranked(channels_over_heads(of(Axis::mamba_heads), m.heads));
      heads = ranked(heads_over_channels(of(Axis::mamba_heads), m.heads, all), m.groups);
    }
    for (const int64_t h : heads) {
      for (const int64_t p : channels) order[Label::inner].push_back(h * m.head_dim + p);
    }
    order[Label::mamba_heads] = std::move(heads);
  }
  void operator()(const nn::AttentionSpec& a) const {
    const int64_t per_key = a.heads / a.kv_heads;
    const std::vector<int64_t> in_groups = rank(Axis::heads, a.heads, a.kv_heads);
    std::vector<int64_t> keys = in_place(a.kv_heads);
    if (scores) {
      std::vector<double> sums(static_cast<size_t>(a.kv_heads));
      for (size_t h = 0; h < of(Axis::heads).size(); ++h)
        sums[h / static_cast<size_t>(per_key)] += square(of(Axis::heads)[h]);
      keys = ranked(sums);
    }
    for (const int64_t k : keys) {
      const auto first = in_groups.begin() + k * per_key;
      order[Label::q_heads].insert(order[Label::q_heads].end(), first, first + per_key);
    }
    order[Label::kv_heads] = std::move(keys);
  }
  void operator()(const nn::MlpSpec& f) const { order[Label::ffn] = rank(Axis::ffn, f.width); }
  void operator()(const nn::MoeSpec& e) const {
    order[Label::experts] = rank(Axis::experts, e.experts, e.n_group);
    const std::vector<int64_t> channels = rank(Axis::expert_ffn, e.experts * e.width, e.experts);
    for (int64_t i = 0; i < e.experts * e.width; ++i) {
      if (i % e.width == 0) order.expert_ffn.emplace_back();
      order.expert_ffn.back().push_back(channels[static_cast<size_t>(i)] % e.width);
    }
    if (e.shared_width > 0) order[Label::ffn] = rank(Axis::shared_ffn, e.shared_width);
    if (e.latent > 0) order[Label::latent] = rank(Axis::latent, e.latent);
  }
  void operator()(const models::LinearSpec&) const {}
};

Keep order_by(const Config& config, const Scores* scores) {
  Keep order;
  order.hidden = scores ? ranked(scores->of.at({Axis::hidden, -1})) : in_place(config.hidden);
  order.layers = scores ? ranked(scores->of.at({Axis::layers, -1})) : in_place(std::ssize(config.layers));
  each_block_of_layers(config, [&](const models::BlockSpec& block, int layer) {
    std::visit(Ranker{scores, layer, order.of_layer[layer]}, block);
  });
  return order;
}

void shorten(std::vector<int64_t>& list, int64_t n) { list.resize(static_cast<size_t>(n)); }

// The first units of one block: `was` becomes `is`.
struct Shortener {
  const models::BlockSpec& small;
  LayerKeep& keep;

  void operator()(const nn::Mamba2Spec& was) const {
    const auto& is = std::get<nn::Mamba2Spec>(small);
    keep[Label::mamba_heads] = first_in_groups(keep[Label::mamba_heads], was.groups, is.heads);
    // Of every head that stays the first channels.
    const std::vector<int64_t> channels = first_in_groups(keep[Label::inner], was.heads, was.heads * is.head_dim);
    keep[Label::inner] = first_in_groups(channels, was.groups, is.heads * is.head_dim);
  }
  void operator()(const nn::AttentionSpec& was) const {
    const auto& is = std::get<nn::AttentionSpec>(small);
    shorten(keep[Label::kv_heads], is.kv_heads);
    std::vector<int64_t>& heads = keep[Label::q_heads];
    heads = first_in_groups(heads, was.kv_heads, is.heads / is.kv_heads * was.kv_heads);
    shorten(heads, is.heads);
  }
  void operator()(const nn::MlpSpec&) const { shorten(keep[Label::ffn], std::get<nn::MlpSpec>(small).width); }
  void operator()(const nn::MoeSpec& was) const {
    const auto& is = std::get<nn::MoeSpec>(small);
    keep[Label::experts] = first_in_groups(keep[Label::experts], was.n_group, is.experts);
    for (std::vector<int64_t>& channels : keep.expert_ffn) shorten(channels, is.width);
    if (was.shared_width > 0) shorten(keep[Label::ffn], is.shared_width);
    if (was.latent > 0) shorten(keep[Label::latent], is.latent);
  }
  void operator()(const models::LinearSpec&) const {}
};

// Of the channels that a norm reads, those that `keep` leaves.
const std::vector<int64_t>& channels_left(const Layout& norm, const Keep& keep) {
  if (norm.cols[0].label == Label::hidden) return keep.hidden;
  return keep.of_layer.at(norm.spec.layer)[norm.cols[0].label];
}

int64_t read_size(const io::Json& sizes, const AxisRange& range) {
  const int64_t size = sizes.int_of({name_of(range.axis)}, {1, range.full}).value_or(range.full);
  if (size == range.full || (range.why.empty() && size >= range.least && size % range.step == 0)) return size;
  sizes.refuse(fmt::format("has a size of {} that the model cannot have: {}", name_of(range.axis), size),
               range.why.empty() ? fmt::format("a multiple of {} from {} to {}", range.step, range.least, range.full)
                                 : std::to_string(range.full));
}

std::vector<int64_t> read_layers(const io::Json& budget, int64_t depth, int64_t left) {
  std::vector<int64_t> layers = in_place(depth);
  if (const auto list = budget.get({"skipped_layers"})) {
    for (const io::Json& l : list->items()) std::erase(layers, l.as_int({0, depth - 1}));
  }
  if (std::ssize(layers) != left)
    budget.refuse(fmt::format("has {} layers and skips {}", left, depth - std::ssize(layers)),
                  fmt::format("as many as {} less those skipped", depth));
  return layers;
}

// Of a measurement over some rows: as many digits as it has.
double rounded(double value) { return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr); }

void read_scales(const io::Json& scales, const Config& config, const Layouts& layouts, Budget& budget) {
  for (const auto& [name, list] : scales.members()) {
    const auto& names = layouts.names();
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    const ParamRole role = known ? layouts.of(name).spec.role : ParamRole::none;
    if (role != ParamRole::norm && role != ParamRole::gated_norm)
      list.refuse("is not a norm of the model", "its weight");
    std::vector<float>& own = budget.norm_scale[name];
    for (const io::Json& scale : list.items()) own.push_back(static_cast<float>(scale.as_number({1e-6, 1e6})));
    const int64_t groups = norm_groups(config, layouts.of(name));
    if (std::ssize(own) != groups) list.refuse(fmt::format("has {} scales", own.size()), fmt::format("{}", groups));
  }
}

std::vector<int64_t> read_order(const io::Json& json, int64_t depth) {
  std::vector<int64_t> order, sorted;
  for (const io::Json& l : json.items()) order.push_back(l.as_int({0, depth - 1}));
  sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != in_place(depth))
    json.refuse("is not an order of the layers", fmt::format("0 to {} once each", depth - 1));
  return order;
}

void read_energy(const io::Json& json, const Layouts& layouts, std::map<std::string, std::vector<double>>& to) {
  for (const auto& [name, list] : json.members()) {
    const auto& names = layouts.names();
    if (std::find(names.begin(), names.end(), name) == names.end())
      list.refuse("is not a norm of the model", "its weight");
    std::vector<double>& own = to[name];
    for (const io::Json& e : list.items()) own.push_back(e.as_number({0, 1e30}));
    const int64_t channels = layouts.of(name).spec.cols();
    if (std::ssize(own) != channels)
      list.refuse(fmt::format("has {} channels", own.size()), fmt::format("{}", channels));
  }
}

}  // namespace

Keep order_of(const Config& config, const Scores& scores) { return order_by(config, &scores); }
Keep order_of(const Config& config) { return order_by(config, nullptr); }

Keep first_of(const Config& config, const Keep& order, const Sizes& sizes) {
  const Resizer resizer(config, sizes);
  Keep keep = order;
  shorten(keep.hidden, resizer.hidden());
  if (sizes[Axis::layers] > 0) shorten(keep.layers, sizes[Axis::layers]);
  std::sort(keep.layers.begin(), keep.layers.end());
  each_block_of_layers(config, [&](const models::BlockSpec& block, int layer) {
    const models::BlockSpec small = resizer(block);
    std::visit(Shortener{small, keep.of_layer[layer]}, block);
  });
  return keep;
}

Keep keep_of(const Config& config, const Layouts& layouts, const Budget& budget) {
  Keep keep = first_of(config, order_of(config), budget.sizes);
  keep.layers = budget.layers;
  for (const auto& [name, scales] : budget.norm_scale) {
    std::vector<float>& all = keep.norm_scale[name];
    const int64_t each = std::ssize(channels_left(layouts.of(name), keep)) / std::ssize(scales);
    for (const float scale : scales) all.insert(all.end(), static_cast<size_t>(each), scale);
  }
  return keep;
}

Budget budget_of(const Config& config, const Layouts& layouts, const Keep& keep, const Sizes& sizes) {
  Budget budget{.sizes = full_sizes(config), .layers = keep.layers};
  for (size_t i = 0; i < kAxes; ++i) {
    if (sizes.of[i] > 0) budget.sizes.of[i] = sizes.of[i];
  }
  for (const auto& [name, scale] : keep.norm_scale) {
    const int64_t groups = norm_groups(config, layouts.of(name)), each = std::ssize(scale) / groups;
    for (int64_t g = 0; g < groups; ++g) budget.norm_scale[name].push_back(scale[static_cast<size_t>(g * each)]);
  }
  return budget;
}

std::map<std::string, std::vector<double>> energy_in_order(const Layouts& layouts, const Scores& scores,
                                                           const Keep& order) {
  std::map<std::string, std::vector<double>> energy;
  for (const auto& [name, own] : scores.energy) {
    for (const int64_t i : channels_left(layouts.of(name), order)) energy[name].push_back(own[static_cast<size_t>(i)]);
  }
  return energy;
}

const Budget& Nested::find(const std::string& where, const std::string& budget) const {
  char* end = nullptr;
  const double share = std::strtod(budget.c_str(), &end);
  const bool number = !budget.empty() && *end == '\0';
  const auto is_it = [&](const Budget& b) { return b.name == budget || (number && std::fabs(b.share - share) < 1e-9); };
  const auto found = std::find_if(budgets.begin(), budgets.end(), is_it);
  if (found != budgets.end()) return *found;
  std::string names;
  for (const Budget& b : budgets) names += (names.empty() ? "" : ", ") + printable(b.name);
  fail(where, {.what = "the nested model has no such budget", .got = printable(budget), .expected = names});
}

std::string nested_text(const Nested& nested) {
  ordered_json budgets = ordered_json::array();
  for (const Budget& b : nested.budgets) {
    ordered_json sizes = ordered_json::object(), scales = ordered_json::object();
    for (size_t i = 0; i < kAxes; ++i) {
      if (b.sizes.of[i] > 0) sizes[name_of(static_cast<Axis>(i))] = b.sizes.of[i];
    }
    ordered_json skipped = ordered_json::array();
    const int64_t depth = b.layers.empty() ? 0 : nested.budgets[0].layers.back() + 1;
    for (int64_t l = 0; l < depth; ++l) {
      if (!std::binary_search(b.layers.begin(), b.layers.end(), l)) skipped.push_back(l);
    }
    for (const auto& [name, list] : b.norm_scale) scales[name] = list;
    budgets.push_back({{"name", b.name},
                       {"share", b.share},
                       {"sizes", std::move(sizes)},
                       {"skipped_layers", std::move(skipped)},
                       {"norm_scale", std::move(scales)}});
  }
  ordered_json j = {{"measure", nested.measure}, {"budgets", std::move(budgets)}};
  if (!nested.layer_order.empty()) j["layer_order"] = nested.layer_order;
  for (const auto& [name, energy] : nested.energy) {
    ordered_json& list = j["norm_energy"][name] = ordered_json::array();
    for (const double e : energy) list.push_back(rounded(e));
  }
  return j.dump(1) + "\n";
}

Nested read_nested(const std::filesystem::path& folder, const Config& config, const Layouts& layouts) {
  if (!std::filesystem::exists(folder / kNestedFile))
    fail(printable(folder.string()), {.what = "is not a nested model",
                                      .expected = fmt::format("a folder with {}", kNestedFile),
                                      .hint = "braid nest MODEL OUT --data FILE"});
  const io::Json json = io::Json::read(folder / kNestedFile);
  Nested nested{.measure = json.string_of({"measure"}).value_or("params")};
  if (nested.measure != "params" && nested.measure != "active")
    json.need({"measure"}).refuse("is not one of the choices", "params, active");
  const auto ranges = axes_of(config, {.width = 0, .depth = 0});
  for (const io::Json& item : json.need({"budgets"}).items()) {
    Budget& b = nested.budgets.emplace_back();
    b.name = item.need({"name"}).as_string();
    b.share = item.need({"share"}).as_number({1e-6, 1});
    const io::Json sizes = item.need({"sizes"});
    for (const auto& [name, size] : sizes.members()) {
      const auto known = [&axis = name](const AxisRange& r) { return r.full > 0 && axis == name_of(r.axis); };
      if (std::none_of(ranges.begin(), ranges.end(), known))
        size.refuse("is not an axis of the model", "one of its axes");
    }
    for (const AxisRange& range : ranges) {
      if (range.full > 0) b.sizes[range.axis] = read_size(sizes, range);
    }
    b.layers = read_layers(item, std::ssize(config.layers), b.sizes[Axis::layers]);
    if (const auto scales = item.get({"norm_scale"})) read_scales(*scales, config, layouts, b);
  }
  if (const auto order = json.get({"layer_order"})) nested.layer_order = read_order(*order, std::ssize(config.layers));
  if (const auto energy = json.get({"norm_energy"})) read_energy(*energy, layouts, nested.energy);
  if (nested.budgets.empty()) json.need({"budgets"}).refuse("has none", "at least one");
  return nested;
}

}  // namespace braid::prune
