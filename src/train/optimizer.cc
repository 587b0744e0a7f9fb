#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/adamw/adamw.h"
#include "kernels/muon/muon.h"
#include "sys/glob.h"
#include "sys/parallel.h"

namespace braid::train {
namespace {

// Muon is for maps between two activation spaces; token tables, and the unlike parts of a fused in_proj, are not.
bool is_inner_matrix(const Param& p) {
  const bool table = p.role == ParamRole::embedding || p.role == ParamRole::positions || p.role == ParamRole::head;
  return is_matrix(p.role) && !table && p.segments.size() <= 1;
}

// Maps inside the model. Tables are not pruned, and rows of zeros are what new tokens start from.
bool may_keep_zeros(const models::MasterTensor& t) {
  return t.matrix && t.role != ParamRole::embedding && t.role != ParamRole::positions && t.role != ParamRole::head;
}

// Whether this rank counts the elements of a tensor from `at` on, where those that ranks share begin and end.
bool counts(const models::MasterTensor& t, int64_t at) {
  const auto shares = [at](const Range& r) { return r.begin <= at && at < r.begin + r.count; };
  return t.first_sharer || std::none_of(t.shared.begin(), t.shared.end(), shares);
}

constexpr int64_t kGrain = 4096;  // elements that are worth a thread

}  // namespace

Optimizer::Optimizer(const OptimizerRecipe& recipe, models::MasterWeights& masters, const std::vector<Param*>& params,
                     std::span<const Range> own, DividedMatrices* divided)
    : recipe_(recipe), masters_(masters), divided_(divided) {
  int64_t state = 0;
  for (const Range& range : own) {
    for (const models::MasterTensor& tensor : masters.tensors()) {
      // A router's bias is updated by its own rule (Language::finish).
      if (tensor.role != ParamRole::router_bias) add_parts(tensor, params, range, state);
    }
    state += range.count;
  }
  m_.resize(static_cast<size_t>(state));
  v_.resize(static_cast<size_t>(state));
}

void Optimizer::add_parts(const models::MasterTensor& tensor, const std::vector<Param*>& params, const Range& own,
                          int64_t state) {
  const int64_t begin = std::max(tensor.offset, own.begin),
                end = std::min(tensor.offset + tensor.count(), own.begin + own.count);
  if (begin >= end) return;
  const auto state_of = [&](int64_t offset) { return state + offset - own.begin; };
  const bool decays =
      !sys::matches_any(recipe_.no_decay, name_of(tensor.role)) && !sys::matches_any(recipe_.no_decay, tensor.name);
  const bool rounded = masters_.products() == DType::bf16 && tensor.matrix;
  const bool keeps = recipe_.keep_zeros && may_keep_zeros(tensor);
  const Part part{begin, state_of(begin), 1, end - begin, false, decays, rounded, tensor.counted, keeps};
  if (recipe_.kind != "muon" || !tensor.matrix) return add_elements(tensor, part);
  const size_t before = parts_.size();
  for (const Param* p : params) {  // parts of a stacked or fused tensor one by one
    if (&masters_.tensor_of(*p) != &tensor || !is_inner_matrix(*p)) continue;
    const int64_t number = divided_ ? divided_->add(tensor, *p) : -1;
    const bool counted = tensor.counted && counts(tensor, p->offset - tensor.offset);
    parts_.push_back(
        {p->offset, state_of(p->offset), p->value.rows, p->value.cols, true, decays, rounded, counted, keeps, number});
  }
  if (parts_.size() == before) add_elements(tensor, part);
}

void Optimizer::add_elements(const models::MasterTensor& tensor, const Part& all) {
  const int64_t begin = all.offset - tensor.offset, end = begin + all.count();
  std::vector<int64_t> cuts = {begin, end};
  for (const Range& r : tensor.shared) {
    for (const int64_t at : {r.begin, r.begin + r.count}) {
      if (!tensor.first_sharer && begin < at && at < end) cuts.push_back(at);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  for (size_t i = 1; i < cuts.size(); ++i) {
    Part part = all;
    part.offset += cuts[i - 1] - begin;
    part.state += cuts[i - 1] - begin;
    part.cols = cuts[i] - cuts[i - 1];
    part.counted = part.counted && counts(tensor, cuts[i - 1]);
    if (part.cols > 0) parts_.push_back(part);
  }
}

double Optimizer::squared_norm(Ctx& ctx, const Range& of) {
  double sum = 0;
  for (const Part& part : parts_) {
    if (!part.counted || part.offset < of.begin || part.offset >= of.begin + of.count) continue;
    if (part.keeps_zeros) drop_gradients_of_zeros(ctx, part);
    sum += sum_of_squares(ctx, view_of(&masters_.grads()[static_cast<size_t>(part.offset)], {part.count()}));
  }
  return sum;
}

void Optimizer::drop_gradients_of_zeros(Ctx& ctx, const Part& part) {
  const float* w = &masters_.values()[static_cast<size_t>(part.offset)];
  float* g = &masters_.grads()[static_cast<size_t>(part.offset)];
  sys::parallel_for(ctx.threads, part.count(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) g[i] = w[i] == 0 ? 0 : g[i];
  });
}

// Moments too: a run may begin to keep zeros after steps that did not.
void Optimizer::clear_zeros(Ctx& ctx, const Part& part) {
  drop_gradients_of_zeros(ctx, part);
  const float* w = &masters_.values()[static_cast<size_t>(part.offset)];
  float *m = &m_[static_cast<size_t>(part.state)], *v = &v_[static_cast<size_t>(part.state)];
  sys::parallel_for(ctx.threads, part.count(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      m[i] = w[i] == 0 ? 0 : m[i];
      v[i] = w[i] == 0 ? 0 : v[i];
    }
  });
}

void Optimizer::mark_zeros(Ctx& ctx, const Part& part) {
  if (std::ssize(zeros_) < part.count()) zeros_.resize(static_cast<size_t>(part.count()));
  const float* w = &masters_.values()[static_cast<size_t>(part.offset)];
  uint8_t* zeros = zeros_.data();
  sys::parallel_for(ctx.threads, part.count(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) zeros[i] = w[i] == 0;
  });
}

// Muon's update of a zero is not zero, though its gradient is: rows and columns are made orthogonal.
void Optimizer::restore_zeros(Ctx& ctx, const Part& part) {
  float* w = &masters_.values()[static_cast<size_t>(part.offset)];
  Bf16* rounded = part.rounded ? &masters_.rounded()[static_cast<size_t>(part.offset)] : nullptr;
  const uint8_t* zeros = zeros_.data();
  sys::parallel_for(ctx.threads, part.count(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) w[i] = zeros[i] ? 0 : w[i];
    for (int64_t i = begin; rounded && i < end; ++i) rounded[i] = zeros[i] ? Bf16{} : rounded[i];
  });
}

MutView Optimizer::in(std::span<float> array, const Part& part) const {
  return mut_view_of(&array[static_cast<size_t>(part.offset)], part.shape());
}

MutView Optimizer::moments(std::span<float> array, const Part& part) const {
  return mut_view_of(&array[static_cast<size_t>(part.state)], part.shape());
}

MutView Optimizer::working(const Part& part) const {
  return part.rounded ? mut_view_of(&masters_.rounded()[static_cast<size_t>(part.offset)], part.shape()) : MutView();
}

void Optimizer::adamw(Ctx& ctx, const Part& part, const Rates& rates) {
  if (part.keeps_zeros) clear_zeros(ctx, part);
  if (part.keeps_zeros) mark_zeros(ctx, part);
  run(ctx, AdamwStep{.g = in(masters_.grads(), part),
                     .w = in(masters_.values(), part),
                     .m = moments(m_, part),
                     .v = moments(v_, part),
                     .working = working(part),
                     .step = rates.number,
                     .lr = rates.lr,
                     .beta1 = recipe_.beta1,
                     .beta2 = recipe_.beta2,
                     .eps = recipe_.eps,
                     .weight_decay = decay(part),
                     .grad_scale = rates.grad_scale});
  if (part.keeps_zeros) restore_zeros(ctx, part);
}

void Optimizer::muon(Ctx& ctx, std::span<const Part* const> parts, const Rates& rates) {
  std::vector<MutView> directions;
  std::vector<int64_t> numbers;
  directions.reserve(parts.size());
  numbers.reserve(parts.size());
  for (const Part* part : parts) {
    if (part->keeps_zeros) clear_zeros(ctx, *part);
    directions.push_back(in(masters_.grads(), *part));
    numbers.push_back(part->divided);
    run(ctx, MuonDirection{.g = directions.back(), .m = moments(m_, *part), .grad_scale = rates.grad_scale});
  }
  const bool whole = numbers[0] < 0;
  if (whole) run(ctx, Orthogonalize{.x = directions[0]});
  if (!whole) divided_->orthogonalize(ctx, numbers, directions);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = *parts[i];
    const auto [rows, cols] = whole ? std::pair(part.rows, part.cols)
                                    : std::pair((*divided_)[part.divided].rows, (*divided_)[part.divided].cols);
    if (part.keeps_zeros) mark_zeros(ctx, part);
    run(ctx, MuonApply{.x = directions[i],
                       .w = in(masters_.values(), part),
                       .working = working(part),
                       .lr = rates.lr,
                       .weight_decay = decay(part),
                       .scale = muon_scale(rows, cols)});
    if (part.keeps_zeros) restore_zeros(ctx, part);
  }
}

void Optimizer::step(Ctx& ctx, int64_t number, double lr, double norm) {
  // As in torch.nn.utils.clip_grad_norm_.
  const Rates rates{number, lr, recipe_.clip > 0 ? std::min(1.0, recipe_.clip / (norm + 1e-6)) : 1.0};
  std::vector<const Part*> together;
  for (const Part& part : parts_) {
    if (!part.muon) {
      adamw(ctx, part, rates);
    } else if (const Part* one = &part; part.divided < 0) {
      muon(ctx, {&one, 1}, rates);
    } else {
      together.push_back(&part);
    }
  }
  for (std::span<const Part* const> rest = together; !rest.empty();) {
    const size_t n = std::min(rest.size(), static_cast<size_t>(divided_->at_once()));
    muon(ctx, rest.first(n), rates);
    rest = rest.subspan(n);
  }
  masters_.follow(ctx.threads);
}

}  // namespace braid::train
