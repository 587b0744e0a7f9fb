#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/adamw/adamw.h"
#include "kernels/muon/muon.h"
#include "sys/glob.h"

namespace braid::train {
namespace {

// Muon is for maps between two activation spaces; token tables, and the unlike parts of a fused in_proj, are not.
bool is_inner_matrix(const Param& p) {
  const bool table = p.role == ParamRole::embedding || p.role == ParamRole::positions || p.role == ParamRole::head;
  return is_matrix(p.role) && !table && p.segments.size() <= 1;
}

}  // namespace

Optimizer::Optimizer(const OptimizerRecipe& recipe, models::MasterWeights& masters, const std::vector<Param*>& params,
                     Range own)
    : recipe_(recipe),
      masters_(masters),
      own_(own),
      m_(static_cast<size_t>(own.count)),
      v_(static_cast<size_t>(own.count)) {
  const bool rounded = masters.products() == DType::bf16;
  const auto decays = [&](const models::MasterTensor& tensor) {
    return !sys::matches_any(recipe.no_decay, name_of(tensor.role)) && !sys::matches_any(recipe.no_decay, tensor.name);
  };
  for (const models::MasterTensor& tensor : masters.tensors()) {
    if (tensor.role == ParamRole::router_bias) continue;  // updated by its own rule (Language::finish)
    const int64_t begin = std::max(tensor.offset, own.begin),
                  end = std::min(tensor.offset + tensor.count(), own.begin + own.count);
    if (begin >= end) continue;
    Part part{begin, 1, end - begin, false, decays(tensor), rounded && tensor.matrix, tensor.counted};
    if (recipe.kind != "muon" || !tensor.matrix) {
      parts_.push_back(part);
      continue;
    }
    const size_t before = parts_.size();
    for (const Param* p : params) {  // parts of a stacked or fused tensor one by one
      if (&masters.tensor_of(*p) == &tensor && is_inner_matrix(*p))
        parts_.push_back({p->offset, p->value.rows, p->value.cols, true, part.decays, part.rounded, part.counted});
    }
    if (parts_.size() == before) parts_.push_back(part);
  }
}

double Optimizer::squared_norm(Ctx& ctx) const {
  double sum = 0;
  for (const Part& part : parts_) {
    if (!part.counted) continue;
    sum += sum_of_squares(ctx, view_of(&masters_.grads()[static_cast<size_t>(part.offset)], {part.rows * part.cols}));
  }
  return sum;
}

void Optimizer::step(Ctx& ctx, int64_t number, double lr, double norm) {
  // As in torch.nn.utils.clip_grad_norm_.
  const double scale = recipe_.clip > 0 ? std::min(1.0, recipe_.clip / (norm + 1e-6)) : 1.0;
  for (const Part& part : parts_) {
    const auto at = static_cast<size_t>(part.offset);
    const Shape shape = part.muon ? Shape{part.rows, part.cols} : Shape{part.rows * part.cols};
    const auto in = [&](std::span<float> array) { return mut_view_of(&array[at], shape); };
    const auto state = [&](std::span<float> array) {
      return mut_view_of(&array[static_cast<size_t>(part.offset - own_.begin)], shape);
    };
    const MutView working = part.rounded ? mut_view_of(&masters_.rounded()[at], shape) : MutView();
    const double decay = part.decays ? recipe_.weight_decay : 0;
    if (part.muon) {
      run(ctx, MuonStep{.g = in(masters_.grads()),
                        .w = in(masters_.values()),
                        .m = state(m_),
                        .working = working,
                        .lr = lr,
                        .weight_decay = decay,
                        .scale = muon_scale(part.rows, part.cols),
                        .grad_scale = scale});
    } else {
      run(ctx, AdamwStep{.g = in(masters_.grads()),
                         .w = in(masters_.values()),
                         .m = state(m_),
                         .v = state(v_),
                         .working = working,
                         .step = number,
                         .lr = lr,
                         .beta1 = recipe_.beta1,
                         .beta2 = recipe_.beta2,
                         .eps = recipe_.eps,
                         .weight_decay = decay,
                         .grad_scale = scale});
    }
  }
  masters_.follow(ctx.threads);
}

}  // namespace braid::train
