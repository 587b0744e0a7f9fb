#include "quant/layer_model.h"

#include "core/integers.h"
#include "models/cut.h"
#include "quant/samples.h"

namespace braid::quant {
namespace {

models::Config only(const models::Config& whole, int64_t layer) {
  models::Config config = models::stage_config(
      whole, {.runs = {{layer, 1}}, .first = layer == 0, .last = layer + 1 == std::ssize(whole.layers)});
  config.mtp.reset();
  return config;
}

}  // namespace

LayerModel::LayerModel(const models::Config& config, int64_t layer, nn::ParamSource& whole,
                       const std::map<std::string, Weight>& values)
    : source_(whole, values), layer_(layer), model_(std::make_unique<models::Model>(only(config, layer), source_)) {}

void LayerModel::forward(Ctx& ctx, std::span<const int32_t> ids, std::vector<float>& x, nn::Observer* observer) {
  const SeqMap seqs = SeqMap::one(std::ssize(ids));
  nn::StateView state;
  nn::Run run{
      .ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::serving(DType::f32), .observer = observer};
  const Tensor in = layer_ == 0 ? Tensor() : copied_rows(ctx, x, std::ssize(ids));
  const Tensor out = model_->forward(run, integers(ctx.arena, ids), in, {layer_, 1});
  const float* values = out.view().as<float>();
  x.assign(values, values + out.view().count());
}

Tensor LayerModel::head_input(Ctx& ctx, const std::vector<float>& x, int64_t tokens) {
  const SeqMap seqs = SeqMap::one(tokens);
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::serving(DType::f32)};
  return model_->final_hidden(run, copied_rows(ctx, x, tokens));
}

}  // namespace braid::quant
