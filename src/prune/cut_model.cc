#include "prune/cut_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "prune/axes.h"

namespace braid::prune {
namespace {

using models::BlockSpec;
using models::Config;

class Chooser {
 public:
  Chooser(const Scores& scores, int layer, LayerKeep& keep) : scores_(scores), layer_(layer), keep_(keep) {}

  void operator()(const nn::Mamba2Spec& was, const nn::Mamba2Spec& is) const {
    const std::span<const double> s = find(Axis::mamba_heads);
    const std::vector<int64_t> channels = keep(channels_over_heads(s, was.heads), 1, is.head_dim);
    keep_[Label::mamba_heads] =
        keep(heads_over_channels(s, was.heads, channels), scores_.ungrouped ? 1 : was.groups, is.heads);
    for (const int64_t h : keep_[Label::mamba_heads]) {
      for (const int64_t p : channels) keep_[Label::inner].push_back(h * was.head_dim + p);
    }
  }
  void operator()(const nn::AttentionSpec& was, const nn::AttentionSpec& is) const {
    const std::span<const double> s = find(Axis::heads);
    const int64_t per_key = was.heads / was.kv_heads, stay = is.heads / is.kv_heads;
    const std::vector<int64_t> in_groups = keep_in_groups(s, was.kv_heads, stay * was.kv_heads);
    std::vector<double> keys(static_cast<size_t>(was.kv_heads));  // the norm over the query heads that it would keep
    for (const int64_t h : in_groups)
      keys[static_cast<size_t>(h / per_key)] += s[static_cast<size_t>(h)] * s[static_cast<size_t>(h)];
    keep_[Label::kv_heads] = keep_best(keys, is.kv_heads);
    for (const int64_t h : in_groups) {
      const auto& kept = keep_[Label::kv_heads];
      if (std::binary_search(kept.begin(), kept.end(), h / per_key)) keep_[Label::q_heads].push_back(h);
    }
  }
  void operator()(const nn::MlpSpec& was, const nn::MlpSpec& is) const {
    keep_[Label::ffn] = was.width == is.width ? in_place(was.width) : keep_best(find(Axis::ffn), is.width);
  }
  void operator()(const nn::MoeSpec& was, const nn::MoeSpec& is) const {
    keep_[Label::experts] = keep(find(Axis::experts), was.n_group, is.experts);
    const std::span<const double> channels = find(Axis::expert_ffn);
    const auto width = static_cast<size_t>(was.width);
    for (size_t e = 0; e < static_cast<size_t>(was.experts); ++e)
      keep_.expert_ffn.push_back(keep_best(channels.subspan(e * width, width), is.width));
    if (was.shared_width > 0) keep_[Label::ffn] = keep_best(find(Axis::shared_ffn), is.shared_width);
    if (was.latent > 0) keep_[Label::latent] = keep_best(find(Axis::latent), is.latent);
  }
  void operator()(const models::LinearSpec&, const models::LinearSpec&) const {}

 private:
  static std::vector<int64_t> keep(std::span<const double> scores, int64_t groups, int64_t n) {
    return keep_in_groups(scores, groups, n);
  }
  std::span<const double> find(Axis axis) const {
    const auto found = scores_.of.find({axis, layer_});
    CHECK(found != scores_.of.end(), "no scores of {} in layer {}", name_of(axis), layer_);
    return found->second;
  }

  const Scores& scores_;
  int layer_;
  LayerKeep& keep_;
};

const std::vector<int64_t>& kept_of(const Keep& keep, const Layout& layout, Label label) {
  return label == Label::hidden ? keep.hidden : keep.of_layer.at(layout.spec.layer)[label];
}

std::vector<float> norm_scale(std::span<const double> energy, std::span<const int64_t> kept, int64_t groups) {
  const auto size = static_cast<int64_t>(energy.size()) / groups, stay = std::ssize(kept) / groups;
  std::vector<float> scale(kept.size());
  for (int64_t g = 0; g < groups; ++g) {
    double all_of = 0, kept_of = 0;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) all_of += energy[static_cast<size_t>(i)];
    for (int64_t i = g * stay; i < (g + 1) * stay; ++i)
      kept_of += energy[static_cast<size_t>(kept[static_cast<size_t>(i)])];
    const double ratio = kept_of * static_cast<double>(size) / (all_of * static_cast<double>(stay));
    std::fill_n(scale.begin() + g * stay, stay,
                all_of > 0 && kept_of > 0 ? static_cast<float>(std::sqrt(ratio)) : 1.0f);
  }
  return scale;
}

}  // namespace

int64_t norm_groups(const Config& config, const Layout& layout) {
  if (layout.spec.role != ParamRole::gated_norm) return 1;
  const auto index = static_cast<size_t>(layout.spec.layer), depth = config.layers.size();
  const models::LayerSpec& layer = index < depth ? config.layers[index] : config.mtp->layers[index - depth];
  return std::get<nn::Mamba2Spec>(layer.parts[0].block).groups;
}

void keep_units(const BlockSpec& was, const BlockSpec& is, const Scores& scores, int layer, LayerKeep& keep) {
  const Chooser chooser(scores, layer, keep);
  std::visit([&](const auto& spec) { chooser(spec, std::get<std::decay_t<decltype(spec)>>(is)); }, was);
}

void scale_norms(const Config& config, const Layouts& layouts, const Scores& scores, Keep& keep) {
  for (const auto& [name, energy] : scores.energy) {
    const Layout& layout = layouts.of(name);
    const Label label = layout.cols[0].label;
    if (label != Label::hidden && !keep.of_layer.contains(layout.spec.layer)) continue;
    const std::vector<int64_t>& kept = kept_of(keep, layout, label);
    if (kept.size() < energy.size()) keep.norm_scale[name] = norm_scale(energy, kept, norm_groups(config, layout));
  }
}

std::vector<int64_t> in_place(int64_t n) {
  std::vector<int64_t> list(static_cast<size_t>(n));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

Keep choose(const Config& config, const Layouts& layouts, const Sizes& sizes, const Scores& scores) {
  const Resizer resizer(config, sizes);
  Keep keep;
  keep.hidden = keep_best(scores.of.at({Axis::hidden, -1}), resizer.hidden());
  const int64_t depth = sizes[Axis::layers] > 0 ? sizes[Axis::layers] : std::ssize(config.layers);
  keep.layers = keep_best(scores.of.at({Axis::layers, -1}), depth);
  int index = 0;
  const auto gather = [&](const std::vector<models::LayerSpec>& layers) {
    for (const models::LayerSpec& layer : layers) {
      LayerKeep& own = keep.of_layer[index];
      for (const models::PartSpec& part : layer.parts) keep_units(part.block, resizer(part.block), scores, index, own);
      ++index;
    }
  };
  gather(config.layers);
  if (config.mtp) gather(config.mtp->layers);
  scale_norms(config, layouts, scores, keep);
  return keep;
}

namespace {

// The rows, or columns, that stay; `expert` of those that are chosen for each expert.
std::vector<int64_t> indices(const Keep& keep, const Layout& layout, const std::vector<Piece>& pieces, int64_t expert) {
  std::vector<int64_t> list;
  for (const Piece& p : pieces) {
    const auto add = [&](int64_t unit) {
      for (int64_t i = 0; i < p.width; ++i) list.push_back(p.begin + unit * p.width + i);
    };
    if (p.label == Label::none) {
      for (int64_t u = 0; u < p.units; ++u) add(u);
    } else if (p.label == Label::expert_ffn) {
      const auto& channels = keep.of_layer.at(layout.spec.layer).expert_ffn[static_cast<size_t>(expert)];
      std::for_each(channels.begin(), channels.end(), add);
    } else {
      const auto& kept = kept_of(keep, layout, p.label);
      std::for_each(kept.begin(), kept.end(), add);
    }
  }
  return list;
}

void gather_rows(const View& from, std::span<const int64_t> rows, std::span<const int64_t> cols, std::byte* to) {
  const auto size = static_cast<size_t>(size_of(from.dtype));
  const bool whole = std::ssize(cols) == from.dim(1) && std::is_sorted(cols.begin(), cols.end());
  for (const int64_t r : rows) {
    const std::byte* row = from.data + r * from.stride(0) * static_cast<int64_t>(size);
    if (whole) {
      std::memcpy(to, row, cols.size() * size);
    } else {
      for (size_t i = 0; i < cols.size(); ++i)
        std::memcpy(to + i * size, row + static_cast<size_t>(cols[i]) * size, size);
    }
    to += cols.size() * size;
  }
}

}  // namespace

const Replacement* CutSource::replacement(const std::string& name) const {
  if (!replaced_) return nullptr;
  const auto found = replaced_->find(name);
  return found == replaced_->end() ? nullptr : &found->second;
}

const Layout& CutSource::origin(const nn::ParamRequest& request) const {
  if (const Replacement* own = replacement(request.name); own && !own->like.empty()) return layouts_.of(own->like);
  if (request.expert < 0) return layouts_.of(request.name);
  const int layer = layouts_.of_expert(request.stack, 0).spec.layer;
  const auto& experts = keep_.of_layer.at(layer)[Label::experts];
  return layouts_.of_expert(request.stack, static_cast<int>(experts[static_cast<size_t>(request.expert)]));
}

std::vector<Places> CutSource::places_of(const nn::ParamRequest& request) const {
  const Layout& layout = origin(request);
  const auto of = [&](int64_t expert) {
    return Places{indices(keep_, layout, layout.rows, expert), indices(keep_, layout, layout.cols, expert)};
  };
  if (!layout.stack) return {of(layout.spec.expert)};
  std::vector<Places> list;
  for (const int64_t e : keep_.of_layer.at(layout.spec.layer)[Label::experts]) {
    list.push_back(of(e));
    for (int64_t& row : list.back().rows) row += e * layout.spec.shape[1];
  }
  return list;
}

Param CutSource::cut(const nn::ParamRequest& request) {
  if (const Replacement* own = replacement(request.name)) {
    const View& v = own->value;
    CHECK(v.dim(0) == request.rows() && v.dim(1) == request.cols(), "{}: {}", request.name, to_string(v.shape));
    return request.param(dense_weight(v));
  }
  const Layout& layout = origin(request);
  const Param whole = whole_.get(layout.spec);
  const View& from = whole.value.codes;
  const MutView to = store_->make(from.dtype, {request.rows(), request.cols()});
  int64_t done = 0;
  for (const Places& places : places_of(request)) {
    gather_rows(from, places.rows, places.cols, to.data + done * size_of(to.dtype));
    done += places.count();
  }
  CHECK(done == to.count(), "{}: {} of {} values", request.name, done, to.count());
  if (const auto scale = keep_.norm_scale.find(request.name); scale != keep_.norm_scale.end()) {
    for (size_t i = 0; i < scale->second.size(); ++i) to.as<float>()[i] *= scale->second[i];
  }
  if (keep_.reset_router_bias && request.role == ParamRole::router_bias && to.count() < from.count()) fill(to, 0);
  Param p = request.param(dense_weight(to));
  p.name = whole.name;
  return p;
}

namespace {

class AsAsked final : public nn::ParamSource {
 public:
  explicit AsAsked(nn::ParamSource& files) : files_(files) {}
  bool has(const std::string& name) const override { return files_.has(name); }

 protected:
  Param first(const nn::ParamRequest& request) override {
    Param p = files_.get(request);
    p.name = request.name;
    return p;
  }

 private:
  nn::ParamSource& files_;
};

}  // namespace

std::unique_ptr<models::Model> whole_model(const Config& config, nn::ParamSource& files) {
  AsAsked source(files);
  return std::make_unique<models::Model>(config, source);
}

std::unique_ptr<models::Model> cut_model(const Config& config, const Layouts& layouts, const Keep& keep,
                                         const Sizes& sizes, nn::ParamSource& whole) {
  auto store = std::make_shared<WeightStore>();
  CutSource source(whole, layouts, keep, *store);
  auto model = std::make_unique<models::Model>(resized(config, sizes, keep.layers), source);
  model->store = std::move(store);
  return model;
}

}  // namespace braid::prune
