#include "train/frozen.h"

#include "core/integers.h"
#include "models/load.h"
#include "nn/run.h"
#include "sys/check.h"
#include "train/hidden_states.h"

namespace braid::train {
Frozen::Frozen(const io::ModelPath& path, const Numerics& numerics)
    : model_(models::load_model(path)), numerics_(numerics) {}

std::span<const float> Frozen::losses(Ctx& ctx, const data::Batch& part, bool held_out) {
  auto& seen = seen_[held_out ? 1 : 0];
  const int64_t rows = std::ssize(part.row_ids);
  const auto known = [&](int64_t row) { return seen.contains(part.row_ids[static_cast<size_t>(row)]); };
  for (int64_t begin = 0, end; begin < rows; begin = end) {
    end = begin + 1;
    if (known(begin)) continue;
    while (end < rows && !known(end)) ++end;
    data::take_rows(part, begin, end, missing_);
    compute(ctx, missing_, seen);
  }
  losses_.clear();
  for (const int64_t id : part.row_ids) losses_.insert(losses_.end(), seen[id].begin(), seen[id].end());
  CHECK(losses_.size() == part.ids.size(), "{} losses of {} tokens", losses_.size(), part.ids.size());
  return losses_;
}

template <class Pass>
auto Frozen::run(Ctx& ctx, const data::Batch& rows, Pass&& pass) {
  CHECK(!ctx.tape, "a frozen model is not taped");
  const Tensor ids = integers(ctx.arena, rows.ids), targets = integers(ctx.arena, rows.targets);
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = rows.seqs, .state = state, .numerics = numerics_};
  return pass(run, ids, targets);
}

void Frozen::compute(Ctx& ctx, const data::Batch& rows, std::unordered_map<int64_t, std::vector<float>>& seen) {
  const Tensor losses = run(ctx, rows, [&](nn::Run& run, const Tensor& ids, const Tensor& targets) {
    return model_->losses_of(run, ids, targets);
  });
  const float* values = losses.view().as<float>();
  // The last batch of an epoch is filled up with rows whose targets are masked: the first of a row has them.
  for (size_t row = 0; row < rows.row_ids.size(); ++row)
    seen.try_emplace(rows.row_ids[row], values + rows.rows[row], values + rows.rows[row + 1]);
}

Tensor Frozen::head_input(Ctx& ctx, const data::Batch& part) {
  return run(ctx, part, [&](nn::Run& run, const Tensor& ids, const Tensor&) { return model_->head_input(run, ids); });
}

std::vector<Tensor> Frozen::states(Ctx& ctx, const data::Batch& part, std::span<const int64_t> ends,
                                   Tensor& head_input) {
  return run(ctx, part, [&](nn::Run& run, const Tensor& ids, const Tensor&) {
    return states_of(run, *model_, ids, ends, head_input);
  });
}

}  // namespace braid::train
