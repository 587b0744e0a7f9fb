#include "layout/layer_work.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "train/rehearsal.h"
#include "train/token_shares.h"

namespace braid::layout {
namespace {

using comm::Op;

constexpr size_t kNorm = 2;          // the first things that a block saves: its norm's input and output
constexpr double kLogitRows = 2048;  // that exist at a time, and their bytes (kernels/head_loss/head_loss.h)
constexpr double kLogitBytes = 128 << 20;

// Gradients travel in FP32.
std::vector<Call> sums_of(const LayerPart& kind) {
  std::vector<Call> sums;
  for (const SharedNumbers& shared : kind.shared)
    sums.push_back({Op::all_reduce, Axis::tensor, 4 * shared.count, shared.ranks});
  return sums;
}

}  // namespace

LayerCosting::LayerCosting(const Model& model, const RankModel& rank, const Device& device, const Task& task,
                           const Layout& layout, double tokens)
    : model_(model),
      rank_(rank),
      device_(device),
      task_(task),
      layout_(layout),
      tokens_(tokens),
      x_(real(layout.parallel.axes().x)),
      y_(real(layout.parallel.axes().y)),
      width_(real(rank.config.hidden)),
      element_(task.bf16 ? 2 : 4),
      sum_(task.bf16_sums ? 2 : 4),
      hides_(task.overlap && !layout.parallel.grid.empty()) {
  if (layout.parallel.cp == 1) return;
  const train::ContextModes modes = train::context_modes(layout.parallel, rank.config);
  ring_ = modes.ring, states_ = modes.states;
}

// Of T tokens, each for k experts: with ep x etp ranks apart, those of each of them (a tp-th of T) send a row to the
// etp parts of every chosen expert.
double LayerCosting::expert_rows(const nn::MoeSpec& spec) const {
  const train::ParallelRecipe& p = layout_.parallel;
  const double slots = tokens_ * real(spec.top_k) * (p.divides_experts() ? task_.imbalance : 1);
  return p.divides_experts() ? slots / x_ * real(p.etp) : slots;
}

// Of the gradient of a weight: what it adds to is read and written when the product's sums are over, which nothing
// hides. Many short parts pay for it many times.
double LayerCosting::weight_seconds(const Matrices& p, double rows) const {
  const double flops = 2 * rows * p.rows * p.cols * p.count, read = rows * p.count * (element_ * p.cols + 4 * p.rows);
  return std::max(flops / device_.product_flops(), read / device_.bytes_per_s()) +
         8 * p.rows * p.cols * p.count / device_.bytes_per_s();
}

// What the sum over x for one of a layer's blocks travels behind: gradients of the weights that read the stream.
double LayerCosting::behind_weights(const LayerPart& kind) const {
  if (!hides_) return 0;
  double sum = 0;
  for (const Matrices& p : kind.products) {
    if (!p.expert && nn::hidden_side(p.role) == nn::HiddenSide::reads) sum += weight_seconds(p, tokens_);
  }
  return sum / real(std::ssize(kind.parts));
}

// A product reads a weight once forward and once for the gradient of its inputs. Products of experts have whole tiles
// of rows each, half of one more than they need on average.
void LayerCosting::products(const LayerPart& kind, double rows, LayerWork& work) const {
  const double flops_rate = device_.product_flops(), bytes_rate = device_.bytes_per_s();
  for (const Matrices& p : kind.products) {
    double m = rows;
    if (p.expert) {
      for (const models::PartSpec& part : kind.parts) {
        if (const auto* moe = std::get_if<nn::MoeSpec>(&part.block)) m = expert_rows(*moe) / p.count;
      }
      m += device_.tile_rows / 2;
    }
    const double flops = 2 * m * p.rows * p.cols * p.count, weight = element_ * p.rows * p.cols * p.count,
                 rows_bytes = m * p.count * (element_ * p.cols + 4 * p.rows);
    const double once = std::max(flops / flops_rate, (weight + rows_bytes) / bytes_rate);
    work.forward += once;
    work.backward += once + weight_seconds(p, m);
    kernels(1, 2, work);
  }
}

// Each of which begins when the one before it has ended.
void LayerCosting::kernels(double forward, double backward, LayerWork& work) const {
  work.forward += forward * device_.kernel_us * 1e-6;
  work.backward += backward * device_.kernel_us * 1e-6;
}

// Scores and values over half of the sequence; the chunks of a scan (train/origin.cc has the counts).
void LayerCosting::block(const models::PartSpec& part, LayerWork& work) const {
  const double cp = real(layout_.parallel.cp);
  double forward = 0;
  if (const auto* a = std::get_if<nn::AttentionSpec>(&part.block)) {
    forward = tokens_ * 2 * real(task_.length) * real(a->heads * a->head_dim);
    if (cp > 1 && states_) forward *= 2 - 1 / cp;  // consecutive tokens: the last rank sees most keys
  } else if (const auto* m = std::get_if<nn::Mamba2Spec>(&part.block)) {
    const double q = real(m->chunk), n = real(m->state), d = real(m->inner());
    forward = tokens_ * (q * n * real(m->groups) + 2 * q * d + 4 * d * n);
    if (cp > 1 && states_) forward *= cp;  // one rank after the other
  }
  work.forward += forward / device_.flops();
  work.backward += 2 * forward / device_.flops();
}

// Around a block that ranks have in parts, or, with sp, whole.
void LayerCosting::stream_calls(const LayerPart& kind, const models::PartSpec& part, LayerWork& work) const {
  if (x_ == 1) return;
  const double full = sum_ * tokens_ * width_, read = element_ * tokens_ * width_;
  if (layout_.parallel.sp) {
    work.calls_forward.push_back({Op::all_gather, Axis::tensor, read});
    work.calls_backward.push_back({Op::all_gather, Axis::tensor, full});
    work.calls_backward.push_back({Op::all_gather, Axis::tensor, read});  // once more for the gradient of the weight
    if (!part.cut) return;
    work.calls_forward.push_back({Op::reduce_scatter, Axis::tensor, full});
    work.calls_backward.push_back({Op::reduce_scatter, Axis::tensor, full});
  } else if (part.cut) {
    work.calls_forward.push_back({Op::all_reduce, Axis::tensor, full});
    work.calls_backward.push_back({Op::all_reduce, Axis::tensor, full, 0, behind_weights(kind)});
  }
}

// Products that read the stream give sums over y; those that write it get theirs backward (nn/hidden_parallel.h).
void LayerCosting::hidden_calls(const LayerPart& kind, LayerWork& work) const {
  if (y_ == 1) return;
  for (const Matrices& p : kind.products) {
    const nn::HiddenSide side = p.expert ? nn::HiddenSide::none : nn::hidden_side(p.role);
    if (side == nn::HiddenSide::reads)
      work.calls_forward.push_back({Op::all_reduce, Axis::hidden, sum_ * tokens_ * p.rows * p.count});
    if (side == nn::HiddenSide::writes)
      work.calls_backward.push_back({Op::all_reduce, Axis::hidden, sum_ * tokens_ * p.cols * p.count, 0,
                                     hides_ ? weight_seconds(p, tokens_) : 0});
  }
  for (const models::PartSpec& part : kind.parts) {
    // A number of each token for the norm, two backward.
    work.calls_forward.push_back({Op::all_reduce, Axis::hidden, 4 * tokens_});
    work.calls_backward.push_back({Op::all_reduce, Axis::hidden, 4 * tokens_});
    const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
    if (!moe) continue;
    const double wide = tokens_ * real(moe->expert_hidden());
    if (moe->latent > 0 && !moe->over_hidden) continue;
    if (moe->latent > 0) {
      work.calls_forward.push_back({Op::all_reduce, Axis::hidden, sum_ * wide});
      work.calls_backward.push_back({Op::all_reduce, Axis::hidden, sum_ * wide});
      continue;
    }
    work.calls_forward.push_back({Op::all_gather, Axis::hidden, element_ * wide});
    work.calls_backward.push_back({Op::all_gather, Axis::hidden, sum_ * wide});
    if (!moe->over_hidden) continue;
    work.calls_forward.push_back({Op::reduce_scatter, Axis::hidden, sum_ * wide});
    work.calls_backward.push_back({Op::reduce_scatter, Axis::hidden, sum_ * wide});
  }
}

// A group of a gated norm that several ranks have parts of needs a number a token, both ways.
void LayerCosting::shared_calls(const LayerPart& kind, LayerWork& work) const {
  std::vector<Call>& to = layout_.parallel.zero > 1 ? work.calls_backward : work.sums;
  const std::vector<Call> sums = sums_of(kind);
  to.insert(to.end(), sums.begin(), sums.end());
  if (kind.norm_ranks == 1) return;
  for (std::vector<Call>* calls : {&work.calls_forward, &work.calls_backward})
    calls->push_back({Op::all_reduce, Axis::tensor, 4 * tokens_, kind.norm_ranks});
}

// Rows and weights out, FP32 rows back; gradients likewise, all in FP32 (nn/expert_parallel.cc).
void LayerCosting::expert_calls(const nn::MoeSpec& spec, LayerWork& work) const {
  const train::ParallelRecipe& p = layout_.parallel;
  if (!p.divides_experts()) return;
  const double slots = tokens_ / x_ * real(spec.top_k) * real(p.etp) * task_.imbalance,
               wide = real(spec.expert_hidden());
  work.calls_forward.push_back({Op::all_to_all, Axis::experts, slots * (element_ * wide + 4)});
  work.calls_forward.push_back({Op::all_to_all, Axis::experts, slots * sum_ * wide});
  work.calls_backward.push_back({Op::all_to_all, Axis::experts, slots * sum_ * wide});
  work.calls_backward.push_back({Op::all_to_all, Axis::experts, slots * (sum_ * wide + 4)});
}

// Tokens for heads and back, or keys and values around the ranks, whose steps are like those of a gather.
void LayerCosting::context_calls(const nn::AttentionSpec& spec, LayerWork& work) const {
  const double cp = real(layout_.parallel.cp);
  if (cp == 1) return;
  const double q = real(spec.heads * spec.head_dim), kv = real(spec.kv_heads * spec.head_dim);
  if (ring_) {
    work.calls_forward.push_back({Op::all_gather, Axis::context, element_ * tokens_ * cp * 2 * kv});
    work.calls_backward.push_back({Op::all_gather, Axis::context, element_ * tokens_ * cp * 2 * kv});
    // Gradients go all the way around, one step more than keys.
    work.calls_backward.push_back({Op::reduce_scatter, Axis::context, sum_ * tokens_ * cp * 2 * kv * cp / (cp - 1)});
    return;
  }
  const double shared =
      std::max(real(spec.kv_heads), cp) * real(spec.head_dim);  // a head of keys is sent to all its ranks
  work.calls_forward.push_back({Op::all_to_all, Axis::context, element_ * tokens_ * (q + 2 * shared)});
  work.calls_forward.push_back({Op::all_to_all, Axis::context, element_ * tokens_ * q});
  work.calls_backward.push_back({Op::all_to_all, Axis::context, sum_ * tokens_ * q});
  work.calls_backward.push_back({Op::all_to_all, Axis::context, sum_ * tokens_ * (q + 2 * kv)});
}

void LayerCosting::context_calls(const nn::Mamba2Spec& spec, LayerWork& work) const {
  const double cp = real(layout_.parallel.cp);
  if (cp == 1 || states_) return;  // a state is small, and its wait is in block()
  const double in = real(spec.conv_channels() + spec.heads), out = real(spec.inner());
  work.calls_forward.push_back({Op::all_to_all, Axis::context, element_ * tokens_ * in});
  work.calls_forward.push_back({Op::all_to_all, Axis::context, element_ * tokens_ * out});
  work.calls_backward.push_back({Op::all_to_all, Axis::context, sum_ * tokens_ * out});
  work.calls_backward.push_back({Op::all_to_all, Axis::context, sum_ * tokens_ * in});
}

// Context parallelism has what it exchanges in both forms: by tokens and by heads.
double LayerCosting::exchanged_copies(const models::PartSpec& part) const {
  if (layout_.parallel.cp == 1) return 0;
  const auto* a = std::get_if<nn::AttentionSpec>(&part.block);
  if (a && !ring_) return element_ * tokens_ * real(a->heads * a->head_dim);
  const auto* m = std::get_if<nn::Mamba2Spec>(&part.block);
  return m && !states_ ? element_ * tokens_ * real(m->conv_channels() + m->heads) : 0;
}

// Of what a block saves (plan/memory.h), with the shapes of this rank; what lies outside its parts is shared under sp.
void LayerCosting::retain(const models::PartSpec& part, LayerWork& work) const {
  const train::ParallelRecipe& p = layout_.parallel;
  const auto bytes = plan::ElementBytes::of(task_.bf16 ? DType::bf16 : DType::f32);
  const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
  double cheap = 0, rows = 0;
  const double before = work.traffic;
  double stays = layout_.recompute == Recompute::Kind::full ? 0 : exchanged_copies(part);
  if (moe && p.divides_experts()) {
    rows = expert_rows(*moe);
    stays += rows * (element_ * real(moe->expert_hidden()) + 8);  // what arrived
    // And the sums that come back, where a product reads them.
    if (layout_.recompute == Recompute::Kind::full) stays += element_ * tokens_ * real(moe->latent);
  }
  work.kept += stays, work.traffic += stays;
  const std::vector<plan::Saved> saved = plan::braid_saves(part, rank_.config, bytes);
  kernels(real(std::ssize(saved)), real(std::ssize(saved)), work);  // that write these, and their gradients
  for (size_t i = 0; i < saved.size(); ++i) {
    double n = saved[i].bytes * (i < kNorm ? own_tokens() : tokens_);
    if (rows > 0 && std::string_view(saved[i].what) == "experts") n = saved[i].bytes / real(moe->top_k) * rows;
    work.traffic += n;
    // What ranks read together is a copy, which no plan makes again (nn/tensor_parallel.h).
    const bool copied = x_ > 1 && part.cut && !p.sp && i == 1;
    const bool drops = !copied && (layout_.recompute == Recompute::Kind::full        ? i > 0
                                   : layout_.recompute == Recompute::Kind::selective ? saved[i].cheap
                                                                                     : false);
    if (!drops) work.kept += n;
    if (saved[i].cheap) cheap += n;
  }
  if (layout_.recompute == Recompute::Kind::selective) work.backward += 2 * cheap / device_.bytes_per_s();
  // Gradients of about what the block saves, and that once more where it is recomputed; experts have a workspace, and
  // those of other ranks' rows gradients of them in FP32. Fitted to planned arenas (memory_test.cc).
  double working = (work.traffic - before) * (layout_.recompute == Recompute::Kind::full ? 1.8 : 1);
  if (moe) {
    working = 12 * own_tokens() * width_ + experts_workspace(*moe);
    if (p.divides_experts()) working += 8 * rows * real(moe->expert_hidden());
  }
  work.working = std::max(work.working, working);
}

// The trainer's plan has room for short documents (train/rehearsal.h), each of which begins new rows of every expert.
double LayerCosting::experts_workspace(const nn::MoeSpec& spec) const {
  const bool arrive = layout_.parallel.divides_experts();
  const int64_t rows = std::max<int64_t>(1, std::llround(arrive ? expert_rows(spec) : tokens_));
  return model_.experts_workspace(spec, {.rows = rows,
                                         .top_k = arrive ? 1 : spec.top_k,
                                         .sequences = arrive ? 1 : (rows + train::kDocument - 1) / train::kDocument,
                                         .type = task_.bf16 ? DType::bf16 : DType::f32,
                                         .here = device_.here});
}

LayerWork LayerCosting::layer(const LayerPart& kind) const {
  LayerWork work{.dense = kind.dense, .experts = kind.experts};
  products(kind, tokens_, work);
  for (const models::PartSpec& part : kind.parts) {
    block(part, work);
    stream_calls(kind, part, work);
    retain(part, work);
    if (const auto* moe = std::get_if<nn::MoeSpec>(&part.block)) expert_calls(*moe, work);
    if (const auto* a = std::get_if<nn::AttentionSpec>(&part.block)) context_calls(*a, work);
    if (const auto* m = std::get_if<nn::Mamba2Spec>(&part.block)) context_calls(*m, work);
  }
  hidden_calls(kind, work);
  shared_calls(kind, work);
  // Activations are written and read once forward; backward they and their gradients are read, and gradients written.
  work.forward += 2 * work.traffic / device_.bytes_per_s();
  work.backward += 3 * work.traffic / device_.bytes_per_s();
  if (layout_.recompute == Recompute::Kind::full) work.backward += work.forward;
  if (!task_.offload_activations) return work;
  // They leave while the next layer computes, and come back before their own.
  const double moved = work.kept / device_.host_bytes_per_s();
  work.forward = std::max(work.forward, moved), work.backward = std::max(work.backward, moved);
  return work;
}

LayerWork LayerCosting::table() const {
  LayerWork work{.sums = sums_of(rank_.table), .dense = rank_.table.dense};
  const double moved = 4 * tokens_ * width_, sent = sum_ * tokens_ * width_;
  work.forward = 2 * moved / device_.bytes_per_s();
  work.backward = 3 * moved / device_.bytes_per_s();
  work.kept = 16 * tokens_;
  if (x_ > 1) {
    work.calls_forward.push_back({layout_.parallel.sp ? Op::reduce_scatter : Op::all_reduce, Axis::tensor, sent});
    if (layout_.parallel.sp) work.calls_backward.push_back({Op::all_gather, Axis::tensor, sent});
  }
  return work;
}

void LayerCosting::head_pass(LayerWork& work) const {
  products(rank_.head, tokens_, work);
  // Logits are never kept, so the gradient is computed with the loss.
  if (x_ > 1 && layout_.parallel.sp) {
    work.calls_forward.push_back({Op::all_gather, Axis::tensor, element_ * tokens_ * width_});
    work.calls_backward.push_back({Op::reduce_scatter, Axis::tensor, sum_ * tokens_ * width_});
  } else if (x_ > 1) {
    work.calls_backward.push_back({Op::all_reduce, Axis::tensor, sum_ * tokens_ * width_});
  }
  if (y_ > 1) work.calls_forward.push_back({Op::all_reduce, Axis::hidden, 4 * tokens_ * rank_.head.products[0].rows});
}

LayerWork LayerCosting::head() const {
  LayerWork work{.dense = rank_.head.dense};
  head_pass(work);
  work.sums = sums_of(rank_.head);
  work.kept = own_tokens() * (8 * width_);  // the final norm's input, and the gradient of the loss
  const double rows = std::min(kLogitRows, tokens_), vocab = rank_.head.products[0].rows;
  work.traffic = work.kept;
  work.working = std::min(8 * rows * vocab, kLogitBytes);  // logits and their gradient
  for (const LayerPart& kind : rank_.mtp) {
    LayerWork own = layer(kind);
    work.dense += kind.dense, work.experts += kind.experts;
    if (model_.recipe().loss.mtp_scale == 0) continue;
    work.forward += own.forward, work.backward += own.backward, work.kept += own.kept;
    work.working = std::max(work.working, own.working);
    work.calls_forward.insert(work.calls_forward.end(), own.calls_forward.begin(), own.calls_forward.end());
    work.calls_backward.insert(work.calls_backward.end(), own.calls_backward.begin(), own.calls_backward.end());
    work.sums.insert(work.sums.end(), own.sums.begin(), own.sums.end());
  }
  if (!rank_.mtp.empty() && model_.recipe().loss.mtp_scale > 0) head_pass(work);
  return work;
}

}  // namespace braid::layout
