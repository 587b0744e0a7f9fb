#include "train/stage_passes.h"

#include <algorithm>
#include <utility>

#include "core/integers.h"
#include "models/count.h"
#include "models/cut.h"
#include "models/division.h"
#include "sys/error.h"
#include "train/origin.h"

namespace braid::train {
namespace {

// Messages between the same stages differ by the run of layers that reads them.
uint16_t tag_of(int64_t run, bool forward) { return static_cast<uint16_t>(2 * run + (forward ? 0 : 1)); }

// The passes of the prediction block and of its head.
double prediction_flops(const Recipe& recipe, const models::Config& config) {
  if (!config.mtp || recipe.loss.mtp_scale == 0) return 0;
  const int64_t head = config.vocab * config.hidden;
  return 6 * static_cast<double>(recipe.loss.mtp_steps * (models::count_parameters(config).mtp + head));
}

struct Ends {
  sys::FunctionRef<void(const MutView& x)> receive;   // the stream from the layers before
  sys::FunctionRef<void(const Tensor& x)> continue_;  // the stream after the last layer of the chunk
};
struct Stream {
  Ref in, out;
};

Stream pass_through(nn::Run& run, models::Model& model, const Chunk& chunk, const Tensor& ids, const Ends& ends) {
  Tensor in;
  if (!chunk.first) {
    in = Tensor(run.ctx.arena, DType::f32, {run.rows().tokens(), model.config().hidden});
    ends.receive(in.mut());
    if (run.ctx.tape) run.ctx.tape->require_grad(in);
  }
  const Tensor out = model.forward(run, ids, in, chunk.layers);
  ends.continue_(out);
  return {in, chunk.last ? Ref() : Ref(out)};
}

// What the layers behind a chunk say of its output.
void add_gradient(Ctx& ctx, Tape& tape, const Ref& out, sys::FunctionRef<void(const MutView&)> receive) {
  const Tensor dy(ctx.arena, DType::f32, out.shape());
  receive(dy.mut());
  tape.add_grad(ctx, out, dy);
}

}  // namespace

PipelineShape pipeline_shape(const Recipe& recipe) {
  return {.stages = recipe.parallel.pp, .chunks = recipe.parallel.virtual_stages, .parts = recipe.accumulate};
}

LayerCosts layer_costs(const Recipe& recipe, const models::Config& whole, int64_t length) {
  models::Config one = whole;  // with one layer at a time
  for (models::LayerSpec& layer : one.layers) layer.parts.clear();
  const double none = flops_per_token(one, length);
  LayerCosts costs;
  for (size_t i = 0; i < one.layers.size(); ++i) {
    one.layers[i] = whole.layers[i];
    costs.layers.push_back(flops_per_token(one, length) - none);
    one.layers[i].parts.clear();
  }
  costs.last = none + prediction_flops(recipe, whole);
  return costs;
}

models::Stage stage_of(const Recipe& recipe, const models::Config& whole, int64_t length, int64_t stage) {
  const PipelineShape shape = pipeline_shape(recipe);
  const int64_t runs = shape.stages * shape.chunks;
  if (runs > std::ssize(whole.layers)) {
    fail("parallel.pp", {.what = "there are more runs of layers than layers",
                         .got = fmt::format("{} stages x {}", shape.stages, shape.chunks),
                         .expected = fmt::format("at most {} layers", whole.layers.size())});
  }
  const LayerCosts costs = layer_costs(recipe, whole, length);
  const std::vector<Range> all = models::split_layers(costs.layers, costs.last, runs);
  models::Stage own{.runs = {}, .first = stage == 0, .last = stage == shape.stages - 1};
  for (int64_t chunk = 0; chunk < shape.chunks; ++chunk)
    own.runs.push_back(all[static_cast<size_t>(chunk * shape.stages + stage)]);
  return own;
}

std::vector<Chunk> chunks_of(const models::Stage& stage) {
  std::vector<Chunk> chunks;
  for (const Range& layers : stage.runs) chunks.push_back({.layers = layers});
  if (chunks.empty()) return chunks;
  chunks.front().first = stage.first;
  chunks.back().last = stage.last;
  return chunks;
}

void rehearse_chunk(nn::Run& run, models::Model& model, const Chunk& chunk, int64_t tokens,
                    const models::Model::LossOptions& options) {
  const auto nothing = [](const MutView&) {};
  Stream stream;
  {
    const Tensor ids(run.ctx.arena, DType::i32, {tokens}), targets(run.ctx.arena, DType::i32, {tokens});
    const auto predict = [&](const Tensor& x) {
      models::Model::LossSums sums;
      if (chunk.last) model.loss(run, x, ids, targets, options, sums);
    };
    stream = pass_through(run, model, chunk, ids, {nothing, predict});
  }
  if (stream.out) add_gradient(run.ctx, *run.ctx.tape, stream.out, nothing);
}

StagePasses::Slot::Slot(const Ctx& like, const StepPlan& own)
    : plan(own),
      ctx{.arena = arena,
          .threads = like.threads,
          .tape = &tape,
          .poison = like.poison,
          .verbose_dispatch = like.verbose_dispatch,
          .forced_rows = like.forced_rows,
          .preferred_rows = like.preferred_rows,
          .gpu = like.gpu} {
  tape.drop = [this](Cost, size_t node) { return plan.drops(node); };
}

StagePasses::StagePasses(const Recipe& recipe, models::Model& model, comm::Group& stages, const Ctx& ctx,
                         std::span<const StepPlan> plans)
    : model_(model),
      stages_(stages),
      shape_(pipeline_shape(recipe)),
      passes_(pipeline_passes(shape_, stages.rank())),
      chunks_(chunks_of(model.config().stage)),
      slots_(chunks_.size()) {
  CHECK(plans.size() == chunks_.size(), "{} plans of {} chunks", plans.size(), chunks_.size());
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const int64_t count = parts_in_flight(passes_, static_cast<int64_t>(chunk));
    for (int64_t i = 0; i < count; ++i) slots_[chunk].push_back(std::make_unique<Slot>(ctx, plans[chunk]));
  }
}

int64_t StagePasses::bytes() const {
  int64_t sum = 0;
  for (const auto& slots : slots_) {
    for (const auto& slot : slots) sum += slot->plan.arena.bytes;
  }
  return sum;
}

int64_t StagePasses::outgrown() const {
  int64_t sum = 0;
  for (const auto& slots : slots_) {
    for (const auto& slot : slots) sum += slot->plan.arena.outgrown;
  }
  return sum;
}

// Parts come and go in order.
StagePasses::Slot& StagePasses::slot(const PipelinePass& pass) {
  const auto& slots = slots_[static_cast<size_t>(pass.chunk)];
  return *slots[static_cast<size_t>(pass.part) % slots.size()];
}

void StagePasses::run(Ctx& ctx, const data::Batch& batch, std::span<const Range> parts, bool backward,
                      const Callbacks& callbacks) {
  CHECK(std::ssize(parts) == shape_.parts, "{} parts", parts.size());
  for (const PipelinePass& pass : passes_) {
    if (!pass.forward) {
      if (backward) this->backward(pass);
      continue;
    }
    const Range rows = parts[static_cast<size_t>(pass.part)];
    Slot* keep = backward ? &slot(pass) : nullptr;
    data::Batch& part = keep ? keep->part : part_;
    data::take_rows(batch, rows.begin, rows.begin + rows.count, part);
    if (keep) keep->arena.begin_pass(keep->plan.arena);
    forward(keep ? keep->ctx : ctx, pass, part, callbacks, keep);
  }
  drop_sent(true);
}

void StagePasses::forward(Ctx& ctx, const PipelinePass& pass, const data::Batch& part, const Callbacks& callbacks,
                          Slot* keep) {
  const Chunk& chunk = chunks_[static_cast<size_t>(pass.chunk)];
  nn::Run run = callbacks.run_of(ctx, part, keep ? keep->shares : shares_);
  const Tensor ids = integers(ctx.arena, part.ids), targets = integers(ctx.arena, part.targets);
  const int64_t own = number(pass);
  const auto arrive = [&](const MutView& x) { receive(x, own - 1, own); };
  const auto go_on = [&](const Tensor& x) {
    chunk.last ? callbacks.predict(run, x, ids, targets, part) : send(x.view(), own + 1, true);
  };
  const Stream stream = pass_through(run, model_, chunk, ids, {arrive, go_on});
  if (keep) keep->in = stream.in, keep->out = stream.out;
}

void StagePasses::backward(const PipelinePass& pass) {
  Slot& s = slot(pass);
  const int64_t own = number(pass);
  if (s.out) add_gradient(s.ctx, s.tape, s.out, [&](const MutView& dy) { receive(dy, own + 1, own); });
  s.tape.backward(s.ctx);
  if (s.in) send(s.tape.grad(s.in).view(), own - 1, false);
  s.in = s.out = Ref();
  s.tape.clear();
  s.arena.end_pass();
}

void StagePasses::send(const View& values, int64_t to, bool forward) {
  drop_sent(false);
  std::vector<float> copy;
  if (!spare_.empty()) {
    copy = std::move(spare_.back());
    spare_.pop_back();
  }
  copy.assign(values.as<float>(), values.as<float>() + values.count());
  const View bytes = view_of(copy.data(), {std::ssize(copy)});
  const int peer = static_cast<int>(to % shape_.stages);
  sent_.push_back({std::move(copy), stages_.send(bytes, peer, tag_of(to, forward))});
}

void StagePasses::receive(const MutView& values, int64_t from, int64_t to) {
  const MutView flat(values.data, DType::f32, {values.count()});
  stages_.recv(flat, static_cast<int>(from % shape_.stages), tag_of(to, from < to)).wait();
}

void StagePasses::drop_sent(bool wait) {
  while (!sent_.empty()) {
    if (wait) sent_.front().handle.wait();
    if (!sent_.front().handle.done()) return;
    spare_.push_back(std::move(sent_.front().values));
    sent_.pop_front();
  }
}

}  // namespace braid::train
