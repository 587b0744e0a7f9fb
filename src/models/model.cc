#include "models/model.h"

#include <map>
#include <utility>

#include "models/blocks.h"
#include "nn/ops.h"
#include "sys/error.h"

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
  head_ = config_.tied ? source.again(embedding_)
                       : source.matrix(config_.head, config_.vocab, config_.hidden, "vocab_size, hidden_size");
  if (config_.mtp) build_mtp(source);
}

namespace {

// Asks for each parameter once, and gives it again to whoever asks later.
class Repeats final : public nn::ParamSource {
 public:
  explicit Repeats(nn::ParamSource& source) : source_(source) {}

  bool has(const std::string& name) const override { return source_.has(name); }
  Param matrix(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    return once(name, [&] { return std::vector{source_.matrix(name, rows, cols, keys)}; })[0];
  }
  Param transposed(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    return once(name, [&] { return std::vector{source_.transposed(name, rows, cols, keys)}; })[0];
  }
  Param vector(const std::string& name, const Shape& shape, const char* keys, float plus) override {
    return once(name, [&] { return std::vector{source_.vector(name, shape, keys, plus)}; })[0];
  }
  std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                             const char* keys) override {
    return once(name, [&] { return source_.stacked(name, count, rows, cols, keys); });
  }
  Param again(const Param& p) override { return source_.again(p); }

 private:
  template <class Ask>
  std::vector<Param> once(const std::string& name, const Ask& ask) {
    const auto found = given_.find(name);
    if (found == given_.end()) return given_[name] = ask();
    std::vector<Param> list;
    for (const Param& p : found->second) list.push_back(source_.again(p));
    return list;
  }

  nn::ParamSource& source_;
  std::map<std::string, std::vector<Param>> given_;
};

}  // namespace

void Model::build_mtp(nn::ParamSource& files) {
  const MtpSpec& spec = *config_.mtp;
  CHECK(spec.steps >= 1 && spec.steps <= kMtpSteps, "{}", spec.steps);
  const auto norm = [&](nn::ParamSource& source, const std::string& name) {
    return nn::load_rms_norm(source, name + ".weight", config_.hidden, config_.eps, "hidden_size");
  };
  Repeats source(files);
  for (int64_t step = 0; step < spec.steps; ++step) {
    Mtp& mtp = mtp_.emplace_back();
    mtp.embedding = source.again(embedding_);
    mtp.head = source.again(head_);
    if (step == 0) {
      mtp.read_norm = final_norm_;
      mtp.read_norm.weight = source.again(final_norm_.weight);
    }
    mtp.embedding_norm = norm(source, spec.prefix + "enorm");
    mtp.hidden_norm = norm(source, spec.prefix + "hnorm");
    mtp.projection = source.matrix(spec.prefix + "eh_proj.weight", config_.hidden, 2 * config_.hidden,
                                   "hidden_size, 2 * hidden_size");
    int index = static_cast<int>(config_.layers.size());  // every step: routers count by it
    for (const LayerSpec& layer : spec.layers) mtp.layers.push_back(build_layer(layer, source, index++));
    mtp.final_norm = norm(source, spec.final_norm);
  }
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
    for (Part& part : layers[i])
      x = nn::residual(run, x, part.block->forward(run, part.norm.forward(run, x, run.numerics.products)));
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
    x = nn::residual(run, x, nn::embedding(run, places, positions_));
  }
  return through(run, layers_, std::move(x), true);
}

Tensor Model::logits(nn::Run& run, const Tensor& x) {
  return nn::linear(run, final_norm_.forward(run, x, run.numerics.products), head_);
}

Tensor Model::token_losses(nn::Run& run, const Tensor& x, const Tensor& targets) {
  return nn::head_loss(run, final_norm_.forward(run, x, run.numerics.products), head_, targets, {}, 0);
}

Tensor Model::final_hidden(nn::Run& run, const Tensor& x) {
  return (mtp_.empty() ? final_norm_ : mtp_[0].read_norm).forward(run, x, DType::f32);
}

Tensor Model::mtp_hidden(nn::Run& run, Mtp& mtp, const Tensor& ids, const Tensor& hidden) {
  const Tensor e = mtp.embedding_norm.forward(run, nn::embedding(run, ids, mtp.embedding), run.numerics.products),
               h = mtp.hidden_norm.forward(run, hidden, run.numerics.products);
  // eh_proj reads both side by side, the embedding first.
  const Tensor x = nn::linear(run, nn::beside(run, e, h), mtp.projection);
  return through(run, mtp.layers, x, false);
}

Tensor Model::mtp_logits(nn::Run& run, const Tensor& ids, const Tensor& hidden) {
  Mtp& mtp = mtp_[0];
  return nn::linear(run, mtp.final_norm.forward(run, mtp_hidden(run, mtp, ids, hidden), run.numerics.products),
                    mtp.head);
}

namespace {

// Adds up token losses, each sequence on its own first. Masked ones are 0.
double sum_of(const SeqMap& seqs, const Tensor& losses, double sum) {
  const auto* loss = losses.view().as<float>();
  for (const Seq& s : seqs.seqs) {
    double own = 0;
    for (int64_t t = s.start; t < s.start + s.len; ++t) own += static_cast<double>(loss[t]);
    sum += own;
  }
  return sum;
}

}  // namespace

int64_t Model::mtp_targets(const SeqMap& seqs, const int32_t* targets, int64_t step) {
  int64_t count = 0;
  for (const Seq& s : seqs.seqs) {
    for (int64_t t = s.start + 1 + step; t < s.start + s.len; ++t) count += targets[t] >= 0 ? 1 : 0;
  }
  return count;
}

void Model::loss(nn::Run& run, const Tensor& ids, const Tensor& targets, const LossOptions& options, LossSums& sums) {
  Ctx& ctx = run.ctx;
  const Tensor weight(ctx.arena, DType::f32, {ids.dim(0)});
  fill(weight.mut(), options.main_weight);
  const Tensor x = forward(run, ids);
  const Tensor main =
      nn::head_loss(run, final_norm_.forward(run, x, run.numerics.products), head_, targets, weight, options.z);
  mtp_loss(run, ids, targets, x, options, sums);
  sums.main = sum_of(run.seqs, main, sums.main);
}

// In step i token t meets the id of t + 1 + i and predicts t + 2 + i; the last of a sequence have nothing to predict.
void Model::mtp_loss(nn::Run& run, const Tensor& ids, const Tensor& targets, const Tensor& x,
                     const LossOptions& options, LossSums& sums) {
  Arena& arena = run.ctx.arena;
  const int64_t tokens = ids.dim(0);
  Tensor hidden;
  for (size_t step = 0; step < mtp_.size() && options.mtp_weight[step] > 0; ++step) {
    const auto ahead = static_cast<int64_t>(step) + 1;
    const Tensor next(arena, DType::i32, {tokens}), after(arena, DType::i32, {tokens}),
        weight(arena, DType::f32, {tokens});
    fill(weight.mut(), options.mtp_weight[step]);
    for (const Seq& s : run.seqs.seqs) {
      for (int64_t t = s.start; t < s.start + s.len; ++t) {
        const bool past = t + ahead >= s.start + s.len;
        next.mut().as<int32_t>()[t] = past ? 0 : ids.view().as<int32_t>()[t + ahead];
        after.mut().as<int32_t>()[t] = past ? -1 : targets.view().as<int32_t>()[t + ahead];
      }
    }
    Mtp& mtp = mtp_[step];
    // The next step reads what comes out of this one's last norm, as serving does.
    hidden = mtp.final_norm.forward(run, mtp_hidden(run, mtp, next, step == 0 ? final_hidden(run, x) : hidden),
                                    run.numerics.products);
    sums.mtp[step] = sum_of(run.seqs, nn::head_loss(run, hidden, mtp.head, after, weight, options.z), sums.mtp[step]);
  }
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
  if (!config_.tied) list.push_back(&head_);
  if (!mtp_.empty()) {
    Mtp& mtp = mtp_[0];
    mtp.embedding_norm.params(list);
    mtp.hidden_norm.params(list);
    list.push_back(&mtp.projection);
    gather(mtp.layers);
    mtp.final_norm.params(list);
  }
  return list;
}

}  // namespace braid::models
