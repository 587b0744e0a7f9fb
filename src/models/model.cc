#include "models/model.h"

#include <cstring>
#include <utility>

#include "models/blocks.h"
#include "nn/ops.h"

namespace braid::models {

Model::Model(Config config, nn::ParamSource& source) : config_(std::move(config)) {
  if (config_.rope) rope_ = std::make_shared<nn::RopeTable>(*config_.rope);
  embedding_ = source.matrix(config_.embedding, config_.vocab, config_.hidden, "vocab_size, hidden_size");
  if (config_.learned_positions > 0) {
    positions_ =
        source.matrix(config_.position_embedding, config_.learned_positions, config_.hidden, "n_positions, n_embd");
  }
  int index = 0;
  for (const LayerSpec& layer : config_.layers) layers_.push_back(build_layer(layer, source, index++));
  final_norm_ = build_norm(config_.final_norm, source, "hidden_size");
  // A tied head may be left out of the file, or stored once more.
  if (!config_.tied) head_ = source.matrix(config_.head, config_.vocab, config_.hidden, "vocab_size, hidden_size");
  if (!config_.mtp) return;
  const MtpSpec& spec = *config_.mtp;
  mtp_.emplace();
  mtp_->embedding_norm =
      nn::load_rms_norm(source, spec.prefix + "enorm.weight", config_.hidden, config_.eps, "hidden_size");
  mtp_->hidden_norm =
      nn::load_rms_norm(source, spec.prefix + "hnorm.weight", config_.hidden, config_.eps, "hidden_size");
  mtp_->projection =
      source.matrix(spec.prefix + "eh_proj.weight", config_.hidden, 2 * config_.hidden, "hidden_size, 2 * hidden_size");
  for (const LayerSpec& layer : spec.layers) mtp_->layers.push_back(build_layer(layer, source, index++));
  mtp_->final_norm = nn::load_rms_norm(source, spec.final_norm + ".weight", config_.hidden, config_.eps, "hidden_size");
}

nn::Norm Model::build_norm(const std::string& name, nn::ParamSource& source, const char* keys) const {
  if (config_.norm == NormKind::rms)
    return nn::load_rms_norm(source, name + ".weight", config_.hidden, config_.eps, keys);
  return nn::load_layer_norm(source, name + ".weight", name + ".bias", config_.hidden, config_.eps,
                             config_.norm == NormKind::layer_plus_one, keys);
}

Model::Layer Model::build_layer(const LayerSpec& spec, nn::ParamSource& source, int index) {
  Layer layer;
  for (const PartSpec& part : spec.parts) {
    Part built{build_norm(part.norm, source, "hidden_size"), build_block(part, config_.storage, source, rope_)};
    built.block->layer = index;
    const nn::StateShape shape = built.block->state_shape();
    if (shape.fixed_bytes() + shape.kv_values_per_token() > 0) {
      built.block->state_index = static_cast<int>(state_shapes_.size());
      state_shapes_.push_back(shape);
      if (shape.heads > 0) mamba_layers_.emplace_back(index, built.block->state_index);
    }
    layer.push_back(std::move(built));
  }
  return layer;
}

Tensor Model::through(nn::Run& run, std::vector<Layer>& layers, Tensor x, bool probe) {
  const auto note = [&](size_t row) {
    auto& rows = run.probe->hidden;
    if (rows.size() <= row) rows.resize(row + 1);
    const auto* values = x.view().as<float>();
    rows[row].insert(rows[row].end(), values, values + x.view().count());
  };
  const bool wanted = probe && run.probe && run.probe->want_hidden;
  if (wanted) note(0);
  for (size_t i = 0; i < layers.size(); ++i) {
    for (Part& part : layers[i]) x = nn::add(run, x, part.block->forward(run, part.norm.forward(run, x, run.act)));
    if (wanted) note(i + 1);
  }
  return x;
}

Tensor Model::forward(nn::Run& run, const Tensor& ids) {
  Tensor x = nn::embedding(run, ids, embedding_);
  if (positions_.value) {
    const Tensor places(run.ctx.arena, DType::i32, {x.dim(0)});
    for (const Seq& s : run.seqs.seqs) {
      for (int64_t t = 0; t < s.len; ++t) places.mut().as<int32_t>()[s.start + t] = static_cast<int32_t>(s.pos0 + t);
    }
    x = nn::add(run, x, nn::embedding(run, places, positions_));
  }
  return through(run, layers_, std::move(x), true);
}

Tensor Model::project_head(nn::Run& run, const Tensor& y) {
  return nn::linear(run, y, config_.tied ? embedding_ : head_);
}

Tensor Model::logits(nn::Run& run, const Tensor& x) { return project_head(run, final_norm_.forward(run, x, run.act)); }

Tensor Model::final_hidden(nn::Run& run, const Tensor& x) { return final_norm_.forward(run, x, DType::f32); }

Tensor Model::mtp_logits(nn::Run& run, const Tensor& ids, const Tensor& hidden) {
  // eh_proj reads both side by side, the embedding first.
  const int64_t tokens = ids.dim(0), width = config_.hidden, half = width * size_of(run.act);
  const Tensor e = mtp_->embedding_norm.forward(run, nn::embedding(run, ids, embedding_), run.act),
               h = mtp_->hidden_norm.forward(run, hidden, run.act), both(run.ctx.arena, run.act, {tokens, 2 * width});
  for (int64_t t = 0; t < tokens; ++t) {
    std::memcpy(both.mut().data + 2 * t * half, e.view().data + t * half, static_cast<size_t>(half));
    std::memcpy(both.mut().data + (2 * t + 1) * half, h.view().data + t * half, static_cast<size_t>(half));
  }
  Tensor x = nn::linear(run, both, mtp_->projection);
  x = through(run, mtp_->layers, std::move(x), false);
  return project_head(run, mtp_->final_norm.forward(run, x, run.act));
}

std::vector<Param*> Model::params() {
  std::vector<Param*> list = {&embedding_};
  if (positions_.value) list.push_back(&positions_);
  const auto gather = [&list](std::vector<Layer>& layers) {
    for (Layer& layer : layers) {
      for (Part& part : layer) {
        part.norm.params(list);
        part.block->params(list);
      }
    }
  };
  gather(layers_);
  final_norm_.params(list);
  if (head_.value) list.push_back(&head_);
  if (mtp_) {
    mtp_->embedding_norm.params(list);
    mtp_->hidden_norm.params(list);
    list.push_back(&mtp_->projection);
    gather(mtp_->layers);
    mtp_->final_norm.params(list);
  }
  return list;
}

}  // namespace braid::models
