#include "puzzle/parent.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "models/cut.h"
#include "models/folder_config.h"
#include "models/inventory.h"
#include "prune/config_edit.h"
#include "prune/prune.h"
#include "prune/write.h"
#include "sys/error.h"

namespace braid::puzzle {
namespace {

using models::Config;

Config split_of(const Config& config) {
  Config split = config;
  split.mtp.reset();
  split.layers.clear();
  for (const models::LayerSpec& layer : config.layers) {
    for (const models::PartSpec& part : layer.parts) split.layers.push_back({.parts = {part}});
  }
  return split;
}

// A Llama's config.json in the words of Llama-Nemotron.
io::Json as_blocks(const io::Json& json, const Config& config) {
  if (config.family != "llama") return json;
  nlohmann::json raw = json.raw();
  const auto& attention = std::get<nn::AttentionSpec>(config.layers[0].parts[0].block);
  raw["architectures"] = {"DeciLMForCausalLM"};
  raw["model_type"] = "nemotron-nas";
  raw["rms_norm_eps"] = config.eps;
  raw["head_dim"] = attention.head_dim;
  raw.erase("num_key_value_heads");
  nlohmann::json blocks = nlohmann::json::array();
  for (const models::LayerSpec& layer : config.layers) {
    const auto& ffn = std::get<nn::MlpSpec>(layer.parts[1].block);
    blocks.push_back({{"attention", {{"n_heads_in_group", attention.heads / attention.kv_heads}}},
                      {"ffn", {{"intermediate_size", ffn.width}}}});
  }
  raw["block_configs"] = std::move(blocks);
  return io::Json::parse(raw.dump(), json.document());
}

// [rows, cols] of key heads along one axis -> the means of `into` groups of neighbours.
View merged(const View& from, const prune::Layout& layout, int64_t into, WeightStore& store) {
  const bool rows = layout.rows[0].label == prune::Label::kv_heads;
  const prune::Piece& piece = rows ? layout.rows[0] : layout.cols[0];
  const int64_t group = piece.units / into, less = into * piece.width, cols = from.dim(1);
  const MutView to = store.make(from.dtype, rows ? Shape{less, cols} : Shape{from.dim(0), less});
  for (int64_t r = 0; r < to.dim(0); ++r) {
    for (int64_t c = 0; c < to.dim(1); ++c) {
      const int64_t at = rows ? r : c, unit = at / piece.width, inside = at % piece.width;
      double sum = 0;
      for (int64_t i = 0; i < group; ++i) {
        const int64_t source = (unit * group + i) * piece.width + inside;
        sum += element(from, rows ? source * cols + c : r * cols + source);
      }
      set_element(to, r * to.dim(1) + c, sum / static_cast<double>(group));
    }
  }
  return to;
}

bool has_label(const prune::Layout& layout, prune::Label label) {
  return layout.rows[0].label == label || layout.cols[0].label == label;
}

}  // namespace

Parent::Parent(const io::ModelPath& path)
    : path_(path),
      json_(models::folder_config(path)),
      config_(models::load_config(path)),
      split_(split_of(config_)),
      folder_(models::open_folder(path)),
      weights_(path.weights) {
  if (config_.loop) fail(printable(path.name), {.what = "has recurrent depth", .expected = "a stack of layers"});
  layouts_.emplace(config_, folder_.source.get());
  prune::refuse_quantised(path, *layouts_, *folder_.source);
  model_ = prune::whole_model(split_, *folder_.source);
}

void Parent::measure(std::span<const data::Batch> rows, int threads, const prune::Progress& progress) {
  const auto whole = prune::whole_model(config_, *folder_.source);
  scores_ = prune::measured_scores(*whole, rows, prune::ExpertScore::all_tokens, threads, progress);
}

void Parent::add_layer(prune::Keep& keep, size_t layer, std::span<const Variant* const> parts) const {
  const auto number = static_cast<int>(layer);
  prune::LayerKeep& own = keep.of_layer[number] = {};
  const auto& whole =
      layer < config_.layers.size() ? config_.layers[layer] : config_.mtp->layers[layer - config_.layers.size()];
  for (size_t p = 0; p < whole.parts.size(); ++p) {
    const models::BlockSpec& was = whole.parts[p].block;
    const bool cut = p < parts.size() && parts[p] && parts[p]->change == Change::cut;
    prune::keep_units(was, cut ? parts[p]->block : was, scores_, number, own);
  }
}

prune::Keep Parent::whole_keep() const {
  prune::Keep keep;
  keep.hidden.resize(static_cast<size_t>(config_.hidden));
  std::iota(keep.hidden.begin(), keep.hidden.end(), 0);
  return keep;
}

prune::Keep Parent::keep_of(const Site& site, const Variant& variant) const {
  prune::Keep keep = whole_keep();
  std::vector<const Variant*> parts(site.part + 1);
  parts[site.part] = &variant;
  add_layer(keep, site.layer, parts);
  prune::scale_norms(config_, *layouts_, scores_, keep);
  return keep;
}

Values Parent::first_values(const Site& site, const Variant& variant) {
  Values values{.store = std::make_shared<WeightStore>()};
  const models::PartSpec& part = config_.layers[site.layer].parts[site.part];
  for (const std::string& name : layouts_->names()) {
    const prune::Layout& layout = layouts_->of(name);
    if (layout.spec.layer != static_cast<int>(site.layer) || layout.spec.part != static_cast<int>(site.part)) continue;
    if (variant.change == Change::merged && has_label(layout, prune::Label::kv_heads)) {
      const int64_t heads = std::get<nn::AttentionSpec>(variant.block).kv_heads;
      const Param whole = folder_.source->get(layout.spec);
      values.of[name] = {.value = merged(whole.value.codes, layout, heads, *values.store)};
    }
    const bool out = layout.spec.role == ParamRole::down || layout.spec.role == ParamRole::attention_out;
    if (variant.change == Change::linear && out) {
      const auto& linear = std::get<models::LinearSpec>(variant.block);
      const DType type = folder_.source->get(layout.spec).value.codes.dtype;
      values.of[part.prefix + config_.spelling->find(linear.role)->leaf] = {
          .value = values.store->make(type, {config_.hidden, config_.hidden}), .like = name};
    }
  }
  return values;
}

Config Parent::block_config(size_t index, const Variant& variant) const {
  Config config = split_;
  config.layers[index].parts[0].block = variant.block;
  return models::stage_config(config, {.runs = {{static_cast<int64_t>(index), 1}}, .first = false, .last = false});
}

std::unique_ptr<models::Model> Parent::block(const Site& site, size_t index, const Variant& variant,
                                             const Values& values) {
  if (variant.change == Change::whole) {
    auto whole = std::make_unique<models::Model>(block_config(index, variant), *folder_.source);
    whole->store = folder_.store;
    return whole;
  }
  auto store = std::make_shared<WeightStore>();
  const prune::Keep keep = keep_of(site, variant);
  prune::CutSource source(*folder_.source, *layouts_, keep, *store);
  source.replace(values.of);
  auto model = std::make_unique<models::Model>(block_config(index, variant), source);
  store->keep(values.store);
  model->store = std::move(store);
  return model;
}

Config Parent::assembled(std::span<const Site> sites, std::span<const int64_t> choice) const {
  Config small = config_;
  if (has_two_parts(config_)) small.family = "nemotron-nas";
  for (models::LayerSpec& layer : small.layers) layer.parts.clear();
  for (size_t i = 0; i < sites.size(); ++i) {
    const Site& site = sites[i];
    const Variant& variant = site.variants[static_cast<size_t>(choice[i])];
    if (variant.change == Change::none) continue;
    models::PartSpec part = config_.layers[site.layer].parts[site.part];
    part.block = variant.block;
    small.layers[site.layer].parts.push_back(std::move(part));
  }
  return small;
}

int64_t Parent::bytes_of(const Config& small, std::span<const Site> sites, int64_t* params) {
  std::map<std::string, std::string> likes;  // of linear maps, which the parent lacks
  for (const Site& site : sites) {
    for (const Variant& variant : site.variants) {
      if (variant.change != Change::linear) continue;
      for (const auto& [name, value] : first_values(site, variant).of) likes[name] = value.like;
    }
  }
  int64_t bytes = 0;
  for (const models::TensorSpec& tensor : models::stored_inventory(small, *folder_.source)) {
    const auto like = likes.find(tensor.name);
    const prune::Layout& layout = layouts_->of(like == likes.end() ? tensor.name : like->second);
    const DType type = stored_type(folder_.source->get(layout.spec).name);
    bytes += tensor.shape.count() * size_of(type);
    if (params) *params += tensor.shape.count();
  }
  return bytes;
}

bool Parent::stacked() const {
  return std::any_of(layouts_->names().begin(), layouts_->names().end(),
                     [this](const std::string& name) { return layouts_->of(name).stack; });
}

bool Parent::write(std::span<const Site> sites, std::span<const int64_t> choice, const prune::Replacements& values,
                   const std::filesystem::path& out, const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
  prune::Keep keep = whole_keep();
  const size_t depth = config_.layers.size(), all = depth + (config_.mtp ? config_.mtp->layers.size() : 0);
  std::vector<std::vector<const Variant*>> parts(all);
  for (size_t i = 0; i < sites.size(); ++i) {
    auto& list = parts[sites[i].layer];
    list.resize(std::max(list.size(), sites[i].part + 1));
    list[sites[i].part] = &sites[i].variants[static_cast<size_t>(choice[i])];
  }
  for (size_t layer = 0; layer < all; ++layer) add_layer(keep, layer, parts[layer]);
  prune::scale_norms(config_, *layouts_, scores_, keep);
  Config small = assembled(sites, choice);
  for (size_t layer = 0; layer < depth; ++layer) {
    if (has_two_parts(config_) || !small.layers[layer].parts.empty())
      keep.layers.push_back(static_cast<int64_t>(layer));
  }
  std::vector<models::LayerSpec> layers;
  for (const int64_t layer : keep.layers) layers.push_back(small.layers[static_cast<size_t>(layer)]);
  small.layers = std::move(layers);
  const std::string text = prune::small_config_text(as_blocks(json_, config_), small, keep.layers);
  WeightStore none;
  prune::CutSource source(*folder_.source, *layouts_, keep, none);
  source.replace(values);
  return prune::write_small(path_, small, source, stacked(), text, out, progress);
}

Tensor run_layers(Ctx& ctx, models::Model& model, const SeqMap& seqs, const Tensor& ids, const Tensor& x,
                  const Range& layers, const Numerics& numerics) {
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = numerics};
  return layers.count == 0 && x ? x : model.forward(run, ids, x, layers);
}

}  // namespace braid::puzzle
