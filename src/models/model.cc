#include "models/model.h"

#include <algorithm>
#include <utility>

#include "comm/group.h"
#include "models/blocks.h"
#include "nn/balance.h"
#include "nn/context_parallel.h"
#include "nn/hidden_parallel.h"
#include "nn/layer_passes.h"
#include "nn/ops.h"
#include "nn/sequence_parallel.h"
#include "nn/tensor_parallel.h"
#include "sys/error.h"

namespace braid::models {
namespace {

// Dropout uses of a layer; the parts of a layer count up from the residual's.
constexpr uint32_t kEmbeddingDropout = 0x656d6264, kResidualDropout = 0x72657364;

}  // namespace

Model::Model(Config config, nn::ParamSource& source) : dropout(config.dropout), config_(std::move(config)) {
  if (config_.rope) rope_ = std::make_shared<nn::RopeTable>(*config_.rope);
  const Stage& stage = config_.stage;
  if (stage.has_table()) embedding_ = table(source, ParamRole::embedding);
  if (stage.first && config_.learned_positions > 0) positions_ = table(source, ParamRole::positions);
  int index = 0;
  for (const LayerSpec& layer : config_.layers) layers_.push_back(build_layer(layer, source, index++, false));
  if (stage.last) {
    final_norm_ = build_norm(config_.final_norm, source);
    head_ = table(source, ParamRole::head);
  }
  if (config_.loop) build_loop(source);
  if (config_.mtp) build_mtp(source);
  number_states();
}

// A tied head is another use of the embedding; files may leave it out, or store it once more.
Param Model::table(nn::ParamSource& source, ParamRole role) const {
  if (role == ParamRole::head && config_.tied) role = ParamRole::embedding;
  nn::ParamRequest r;
  r.role = role;
  r.shape = {config_.vocab, config_.hidden};
  r.keys = "vocab_size, hidden_size";
  r.shard = {.axis = Shard::Axis::rows, .units = config_.vocab, .uneven = true};
  if (role == ParamRole::positions) {
    r.name = config_.position_embedding;
    r.shape[0] = config_.learned_positions;
    r.keys = "n_positions, n_embd";
    r.shard = {.axis = Shard::Axis::whole};
  } else {
    r.name = role == ParamRole::head ? config_.head : config_.embedding;
    if (config_.cut.ranks > 1) r.shape[0] = ranges_of(r, config_.vocab, config_.hidden, config_.cut)[0].count;
    if (role == ParamRole::embedding) r.padding = config_.padding.value_or(-1);
  }
  return source.get(r);
}

void Model::build_mtp(nn::ParamSource& source) {
  const MtpSpec& spec = *config_.mtp;
  CHECK(spec.steps >= 1 && spec.steps <= kMtpSteps, "{}", spec.steps);
  const auto first = static_cast<int>(config_.layers.size());  // in every step: routers count by it
  const nn::BlockSource own{
      .source = source, .spelling = *config_.spelling, .prefix = spec.prefix, .layer = first, .mtp = true};
  for (int64_t step = 0; step < spec.steps; ++step) {
    Mtp& mtp = mtp_.emplace_back();
    mtp.embedding = table(source, ParamRole::embedding);
    mtp.head = table(source, ParamRole::head);
    if (step == 0) mtp.read_norm = build_norm(config_.final_norm, source);
    mtp.embedding_norm = build_norm(spec.prefix + "enorm", source, first, true);
    mtp.hidden_norm = build_norm(spec.prefix + "hnorm", source, first, true);
    mtp.projection = own.get(ParamRole::mtp_in, {config_.hidden * config_.cut.hidden_ranks, 2 * config_.hidden},
                             {.axis = Shard::Axis::whole});
    int index = first;
    for (const LayerSpec& layer : spec.layers) mtp.layers.push_back(build_layer(layer, source, index++, true));
    mtp.final_norm = build_norm(spec.final_norm, source, index - 1, true);
  }
}

// Norm and head were requested first: what the loop shares with them is another use.
void Model::build_loop(nn::ParamSource& source) {
  const LoopSpec& loop = *config_.loop;
  CHECK(loop.begin < loop.end && loop.end <= layers_.size(), "layers {} to {} of {}", loop.begin, loop.end,
        layers_.size());
  loop_in_ = nn::BlockSource{source, *config_.spelling, loop.prefix, static_cast<int>(loop.begin)}.get(
      ParamRole::loop_in, {config_.hidden, 2 * config_.hidden}, {.axis = Shard::Axis::whole});
  loop_norm_ = build_norm(loop.norm, source);
}

nn::Norm Model::build_norm(const std::string& name, nn::ParamSource& source, int layer, bool mtp) const {
  return nn::load_norm(source, {.name = name, .layer = layer, .mtp = mtp},
                       {.width = config_.hidden,
                        .eps = config_.eps,
                        .centred = config_.norm != NormKind::rms,
                        .one_plus = config_.norm == NormKind::layer_plus_one});
}

Model::Layer Model::build_layer(const LayerSpec& spec, nn::ParamSource& source, int index, bool mtp) {
  Layer layer;
  for (const PartSpec& part : spec.parts) {
    const nn::BlockSource own{.source = source,
                              .spelling = *config_.spelling,
                              .prefix = part.prefix,
                              .layer = index,
                              .part = static_cast<int>(layer.size()),
                              .mtp = mtp};
    Part built{build_norm(part.norm, source, index, mtp), build_block(part.block, own, rope_)};
    built.block->layer = index;
    built.cut = part.cut;
    built.experts = std::holds_alternative<nn::MoeSpec>(part.block);
    if (!part.after.empty()) built.after = build_norm(part.after, source, index, mtp);
    layer.push_back(std::move(built));
  }
  return layer;
}

void Model::number_states() {
  const auto number = [this](std::span<Layer> layers) {
    for (Layer& layer : layers) {
      for (Part& part : layer) {
        nn::Block& block = *part.block;
        const nn::StateShape shape = block.state_shape();
        if (shape.fixed_bytes(DType::f32) == 0 && shape.kv_heads == 0) continue;
        block.state_index = static_cast<int>(state_shapes_.size());
        state_shapes_.push_back(shape);
        if (shape.heads > 0) mamba_layers_.emplace_back(block.layer, block.state_index);
      }
    }
  };
  const size_t begin = config_.loop ? config_.loop->begin : layers_.size(),
               end = config_.loop ? config_.loop->end : layers_.size();
  const std::span all(layers_);
  number(all.first(begin));
  number(all.subspan(end));
  for (Mtp& mtp : mtp_) number(mtp.layers);
  const size_t others = state_shapes_.size();
  number(all.subspan(begin, end - begin));
  loop_states_ = state_shapes_.size() - others;
}

std::vector<nn::StateShape> Model::state_shapes(int64_t loop_states) const {
  std::vector<nn::StateShape> shapes = state_shapes_;
  for (int64_t i = 1; i < loop_states; ++i)
    shapes.insert(shapes.end(), state_shapes_.end() - static_cast<std::ptrdiff_t>(loop_states_), state_shapes_.end());
  return shapes;
}

// `row`: of x among the hidden states that a probe records, and the number of the first layer; nullopt: of the
// prediction block, which has neither. `draws` keeps its dropout apart from that of the layers.
Tensor Model::through(nn::Run& run, std::span<Layer> layers, Tensor x, std::optional<size_t> row, uint32_t draws) {
  const bool wanted = row && run.probe && run.probe->want_hidden;
  const size_t first = row.value_or(0);
  const auto note = [&](size_t at) {
    auto& rows = run.probe->hidden;
    if (rows.size() <= at) rows.resize(at + 1);
    const auto* values = x.view().as<float>();
    rows[at].insert(rows[at].end(), values, values + x.view().count());
  };
  if (wanted && first == 0) note(0);
  for (size_t i = 0; i < layers.size(); ++i) {
    uint32_t use = kResidualDropout + (draws << 8);
    if (row) nn::enter_layer(run, static_cast<int64_t>(first + i));
    for (Part& part : layers[i]) {
      const Tensor y = block_output(run, part, part.norm.forward(run, x, run.numerics.products));
      x = nn::residual(run, x, nn::dropout(run, y, dropout.residual, static_cast<uint32_t>(first + i), use++));
      if (part.after) x = part.after->forward(run, x, DType::f32);
    }
    if (row) nn::leave_layer(run, static_cast<int64_t>(first + i));
    if (wanted) note(first + i + 1);
  }
  return x;
}

// Of a router that every rank has, one rank counts the losses: gradients add up.
Tensor Model::block_output(nn::Run& run, Part& part, const Tensor& x) {
  if (!run.sequence) return part.cut ? sum_over_ranks(run, part, x) : part.block->forward(run, x);
  run.in_block = true;
  const Tensor y = part.cut ? sum_over_ranks(run, part, x)
                            : nn::own_rows(run, part.block->forward(run, nn::gather_to_copies(run, x)));
  run.in_block = false;
  return y;
}

Tensor Model::sum_over_ranks(nn::Run& run, Part& part, const Tensor& x) {
  if (part.experts && run.stage) return nn::sum_of_parts(run, *run.stage, part.block->forward(run, x));
  const bool counts = run.tensor->rank() == 0 || !run.routers;
  nn::RouterWatch::Factors none;
  if (!counts) std::swap(none, run.routers->factors);
  const Tensor y = nn::sum_of_parts(run, part.block->forward(run, nn::to_parts(run, x)));
  if (!counts) std::swap(none, run.routers->factors);
  return y;
}

Tensor Model::look_up(nn::Run& run, const Tensor& ids, Param& table) {
  const Tensor own = nn::own_tokens(run, ids);
  return config_.cut.ranks > 1 ? nn::embedding_part(run, own, table, first_row()) : nn::embedding(run, own, table);
}

nn::HeadLosses Model::losses(nn::Run& run, const Tensor& x, Param& head, const Tensor& targets, const Tensor& weight,
                             float z) {
  if (config_.cut.ranks == 1 && !run.hidden) return nn::head_loss(run, x, head, targets, weight, z);
  return nn::head_loss_part(run, nn::to_parts(run, x), head, targets, weight, first_row());
}

Tensor Model::embed(nn::Run& run, const Tensor& ids) {
  Tensor x = look_up(run, ids, embedding_);
  if (config_.embedding_scale != 1) x = nn::scaled(run, x, config_.embedding_scale, DType::f32);
  if (positions_.value) {
    const Tensor places(run.ctx.arena, DType::i32, {x.dim(0)});
    for (const Seq& s : run.rows().seqs) {
      for (int64_t t = 0; t < s.len; ++t) places.mut().as<int32_t>()[s.start + t] = static_cast<int32_t>(s.pos0 + t);
    }
    x = nn::residual(run, x, nn::embedding(run, places, positions_));
  }
  return nn::dropout(run, x, dropout.embedding, 0, kEmbeddingDropout);
}

Tensor Model::forward(nn::Run& run, const Tensor& ids) {
  if (!config_.loop) return through(run, layers_, embed(run, ids), 0);
  CHECK(run.loop, "a pass over a model with a loop does not say how often");
  return loop_output(run, loop_state(run, ids, run.loop->steps));
}

Tensor Model::forward(nn::Run& run, const Tensor& ids, const Tensor& x, const Range& layers) {
  const auto first = static_cast<size_t>(layers.begin), count = static_cast<size_t>(layers.count);
  return through(run, std::span(layers_).subspan(first, count), x ? x : embed(run, ids), first);
}

Tensor Model::loop_state(nn::Run& run, const Tensor& ids, int64_t end) {
  const Tensor input = loop_input(run, ids);
  Tensor state = run.loop->start;
  for (int64_t step = run.loop->first; step < end; ++step) state = loop_step(run, input, state, step);
  return state;
}

Tensor Model::loop_input(nn::Run& run, const Tensor& ids) {
  return through(run, std::span(layers_).first(config_.loop->begin), embed(run, ids), 0);
}

Tensor Model::loop_step(nn::Run& run, const Tensor& input, const Tensor& state, int64_t step) {
  const LoopSpec& loop = *config_.loop;
  const size_t layers = loop.end - loop.begin;
  const DType type = run.numerics.products;
  const Tensor both = nn::concatenate(run, nn::converted(run, state, type), nn::converted(run, input, type));
  run.state_offset = static_cast<int>(step % run.loop->states) * static_cast<int>(loop_states_);
  run.use = static_cast<uint32_t>(step);
  const Tensor next = through(run, std::span(layers_).subspan(loop.begin, layers), nn::linear(run, both, loop_in_),
                              loop.begin + static_cast<size_t>(step) * layers);
  run.state_offset = 0;
  run.use = 0;
  return next;
}

Tensor Model::loop_output(nn::Run& run, const Tensor& state) {
  const LoopSpec& loop = *config_.loop;
  return through(run, std::span(layers_).subspan(loop.end), loop_norm_.forward(run, state, DType::f32),
                 loop.begin + static_cast<size_t>(run.loop->steps) * (loop.end - loop.begin));
}

Tensor Model::logits(nn::Run& run, const Tensor& x) {
  return head_logits(run, final_norm_.forward(run, x, run.numerics.products), head_);
}

Tensor Model::head_logits(nn::Run& run, const Tensor& x, Param& head) {
  const Tensor y = nn::linear(run, x, head);
  return config_.cut.ranks > 1 ? nn::gather_columns(run, y, config_.vocab) : y;
}

Tensor Model::token_losses(nn::Run& run, const Tensor& x, const Tensor& targets) {
  return losses(run, final_norm_.forward(run, x, run.numerics.products), head_, targets, {}, 0).loss;
}

Tensor Model::final_hidden(nn::Run& run, const Tensor& x) {
  return (mtp_.empty() ? final_norm_ : mtp_[0].read_norm).forward(run, x, DType::f32);
}

Tensor Model::mtp_hidden(nn::Run& run, Mtp& mtp, const Tensor& ids, const Tensor& hidden) {
  const Tensor e = mtp.embedding_norm.forward(run, look_up(run, ids, mtp.embedding), run.numerics.products),
               h = mtp.hidden_norm.forward(run, hidden, run.numerics.products);
  // eh_proj reads both, the embedding first.
  const auto step = static_cast<uint32_t>(&mtp - mtp_.data());
  run.use = step;  // of weights that all steps share
  const Tensor x = nn::linear(run, nn::concatenate(run, e, h), mtp.projection);
  const Tensor y = through(run, mtp.layers, run.hidden ? nn::own_channels(run, x, true) : x, std::nullopt, 1 + step);
  run.use = 0;
  return y;
}

Tensor Model::mtp_step(nn::Run& run, const Tensor& ids, const Tensor& hidden) {
  Mtp& mtp = mtp_[0];
  return mtp.final_norm.forward(run, mtp_hidden(run, mtp, ids, hidden), run.numerics.products);
}

Tensor Model::mtp_logits(nn::Run& run, const Tensor& hidden) { return head_logits(run, hidden, mtp_[0].head); }

namespace {

// Sums `of(t)`, each sequence separately first, times its scale.
template <class Of, class Scale>
double add_up(const SeqMap& seqs, double sum, Of&& of, Scale&& scale) {
  for (const Seq& s : seqs.seqs) {
    double own = 0;
    for (int64_t t = s.start; t < s.start + s.len; ++t) own += of(t);
    sum += own * scale(s);
  }
  return sum;
}
// Token losses. Masked ones are 0.
template <class Scale>
double sum_of(const SeqMap& seqs, double sum, const Tensor& losses, Scale&& scale) {
  return add_up(
      seqs, sum, [loss = losses.view().as<float>()](int64_t t) { return static_cast<double>(loss[t]); }, scale);
}

}  // namespace

int64_t Model::mtp_targets(const SeqMap& seqs, const int32_t* targets, int64_t step) {
  int64_t count = 0;
  for (const Seq& s : seqs.seqs) {
    for (int64_t t = s.start + 1 + step; t < s.start + s.len; ++t) count += targets[t] >= 0 ? 1 : 0;
  }
  return count;
}

void Model::loss(nn::Run& run, const Tensor& x, const Tensor& ids, const Tensor& targets, const LossOptions& options,
                 LossSums& sums) {
  Ctx& ctx = run.ctx;
  const Tensor own = nn::own_tokens(run, targets);
  const Tensor weight(ctx.arena, DType::f32, {own.dim(0)});
  if (!ctx.dry) fill(weight.mut(), options.main_weight);
  const auto scale = [&, target = targets.view().as<int32_t>()](const Seq& piece) {
    if (!options.by_sample) return 1.0;
    const Seq& s = nn::whole_of(run, piece);
    const auto n = s.len - std::count(target + s.start, target + s.start + s.len, -1);
    return 1.0 / static_cast<double>(std::max<int64_t>(1, n));
  };
  if (options.by_sample && !ctx.dry) {
    for (const Seq& s : run.seqs.seqs) fill(weight.mut().slice(0, s.start, s.len), options.main_weight * scale(s));
  }
  const nn::HeadLosses main =
      losses(run, final_norm_.forward(run, x, run.numerics.products), head_, own, weight, options.z);
  mtp_loss(run, ids, targets, x, options, sums);
  if (ctx.dry) return;
  sums.main = sum_of(run.seqs, sums.main, main.loss, scale);
  const auto squared = [&](int64_t t) {
    const double lse = own.view().as<int32_t>()[t] < 0 ? 0.0 : static_cast<double>(main.lse.view().as<float>()[t]);
    return lse * lse;
  };
  sums.z = add_up(run.seqs, sums.z, squared, scale);
}

Tensor Model::losses_of(nn::Run& run, const Tensor& ids, const Tensor& targets) {
  return nn::token_loss(run, head_input(run, ids), head_, targets);
}

Tensor Model::head_input(nn::Run& run, const Tensor& ids) {
  return final_norm_.forward(run, forward(run, ids), run.numerics.products);
}

nn::DistillLosses Model::distill(nn::Run& run, const Tensor& ids, const Tensor& targets, const Tensor& token_weight,
                                 const nn::Teacher& teacher) {
  return nn::distill_loss(run, head_input(run, ids), head_, targets, token_weight, teacher);
}

// In step i token t gets the id of t + 1 + i and predicts t + 2 + i; the last of a sequence have nothing to predict.
void Model::mtp_loss(nn::Run& run, const Tensor& ids, const Tensor& targets, const Tensor& x,
                     const LossOptions& options, LossSums& sums) {
  Arena& arena = run.ctx.arena;
  const int64_t tokens = ids.dim(0);
  Tensor hidden;
  for (size_t step = 0; step < mtp_.size() && options.mtp_weight[step] > 0; ++step) {
    const auto ahead = static_cast<int64_t>(step) + 1;
    const Tensor next(arena, DType::i32, {tokens}), after(arena, DType::i32, {tokens}),
        weight(arena, DType::f32, {run.seqs.tokens()});
    fill(weight.mut(), options.mtp_weight[step]);
    for (const Seq& s : nn::whole_sequences(run).seqs) {
      for (int64_t t = s.start; t < s.start + s.len; ++t) {
        const bool past = t + ahead >= s.start + s.len;
        next.mut().as<int32_t>()[t] = past ? 0 : ids.view().as<int32_t>()[t + ahead];
        after.mut().as<int32_t>()[t] = past ? -1 : targets.view().as<int32_t>()[t + ahead];
      }
    }
    Mtp& mtp = mtp_[step];
    // The next step reads the output of this one's last norm, as serving does.
    hidden = mtp.final_norm.forward(run, mtp_hidden(run, mtp, next, step == 0 ? final_hidden(run, x) : hidden),
                                    run.numerics.products);
    sums.mtp[step] = sum_of(run.seqs, sums.mtp[step],
                            losses(run, hidden, mtp.head, nn::own_tokens(run, after), weight, options.z).loss,
                            [](const Seq&) { return 1.0; });
  }
}

std::vector<Param*> Model::params() {
  std::vector<Param*> list;
  if (embedding_.value) list.push_back(&embedding_);
  if (positions_.value) list.push_back(&positions_);
  const auto gather = [&list](std::vector<Layer>& layers) {
    for (Layer& layer : layers) {
      for (Part& part : layer) {
        part.norm.params(list);
        part.block->params(list);
        if (part.after) part.after->params(list);
      }
    }
  };
  gather(layers_);
  if (config_.stage.last) final_norm_.params(list);
  if (config_.stage.last && !config_.tied) list.push_back(&head_);
  if (config_.loop) list.push_back(&loop_in_);
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
