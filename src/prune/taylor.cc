// Scores from gradients (measure.h): the sum over a unit's parameters of value times gradient.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/tape.h"
#include "models/master_weights.h"
#include "prune/layout.h"
#include "prune/measure.h"
#include "prune/row_pass.h"

namespace braid::prune {
namespace {

using Sums = std::map<std::pair<Axis, int>, std::vector<double>>;

class TaylorSums {
 public:
  explicit TaylorSums(models::Model& model) : params_(model.params()), zero_(random_scores(model.config(), 0).of) {
    for (const Param* p : params_) {
      if (p->role == ParamRole::latent_in) latent_.insert(p->layer);
      if (p->role == ParamRole::router) mixtures_.insert(p->layer);
    }
    for (auto& [key, values] : zero_) std::fill(values.begin(), values.end(), 0.0);
    squares_ = zero_;
  }

  void add_sample() {
    Sums sums = zero_;
    for (const Param* p : params_) {
      if (p->grad && p->role != ParamRole::bias) add(*p, sums);
    }
    for (const auto& [key, values] : sums) {
      std::vector<double>& squares = squares_.at(key);
      for (size_t i = 0; i < values.size(); ++i) squares[i] += square(values[i]);
    }
  }

  Sums roots() const {
    Sums out = squares_;
    for (auto& [key, values] : out) {
      for (double& v : values) v = std::sqrt(v);
    }
    return out;
  }

 private:
  void add(const Param& p, Sums& sums) const {
    const int64_t rows = p.value.rows, cols = p.value.cols;
    std::vector<double> of_row(static_cast<size_t>(rows)), of_col(static_cast<size_t>(cols));
    double all = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const float *value = p.value.codes.as<float>(r), *grad = p.grad.as<float>(r);
      for (int64_t c = 0; c < cols; ++c) {
        const double v = static_cast<double>(value[c]) * static_cast<double>(grad[c]);
        of_row[static_cast<size_t>(r)] += v;
        of_col[static_cast<size_t>(c)] += v;
      }
      all += of_row[static_cast<size_t>(r)];
    }
    const Pieces pieces = pieces_of(p, rows, cols, latent_.contains(p.layer));
    add(p, pieces.rows, of_row, sums);
    add(p, pieces.cols, of_col, sums);
    if (p.expert >= 0) sums.at({Axis::experts, p.layer})[static_cast<size_t>(p.expert)] += all;
    if (p.layer >= 0 && !p.mtp) sums.at({Axis::layers, -1})[static_cast<size_t>(p.layer)] += all;
  }

  void add(const Param& p, const std::vector<Piece>& pieces, const std::vector<double>& values, Sums& sums) const {
    for (const Piece& piece : pieces) {
      std::vector<double>* to = nullptr;
      size_t first = 0;
      switch (piece.label) {
        case Label::hidden:
          if (!p.mtp) to = &sums.at({Axis::hidden, -1});
          break;
        case Label::q_heads:
          to = &sums.at({Axis::heads, p.layer});
          break;
        case Label::inner:
          to = &sums.at({Axis::mamba_heads, p.layer});
          break;
        case Label::ffn:
          to = &sums.at({mixtures_.contains(p.layer) ? Axis::shared_ffn : Axis::ffn, p.layer});
          break;
        case Label::experts:
          to = &sums.at({Axis::experts, p.layer});
          break;
        case Label::expert_ffn:
          to = &sums.at({Axis::expert_ffn, p.layer});
          first = static_cast<size_t>(p.expert * piece.units);
          break;
        case Label::latent:
          to = &sums.at({Axis::latent, p.layer});
          break;
        default:  // shared by the units of no axis, or by the channels of a Mamba head
          break;
      }
      for (int64_t i = 0; to && i < piece.units * piece.width; ++i)
        (*to)[first + static_cast<size_t>(i / piece.width)] += values[static_cast<size_t>(piece.begin + i)];
    }
  }

  std::vector<Param*> params_;
  std::set<int> latent_, mixtures_;  // layers
  Sums zero_, squares_;
};

}  // namespace

Scores taylor_scores(const io::ModelPath& path, std::span<const data::Batch> rows, int threads,
                     const Progress& progress) {
  models::MasterWeights masters(DType::f32);
  const auto model = masters.load(path);
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .threads = threads, .tape = &tape};
  const RowPass pass{.ctx = ctx};
  TaylorSums sums(*model);
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const data::Batch& row = rows[static_cast<size_t>(i)];
    masters.zero_grads(threads);
    pass(*model, row, 1 / static_cast<double>(std::max<int64_t>(1, row.trained)), true);
    masters.sum_uses(threads);
    sums.add_sample();
    if (!progress(i + 1)) break;
  }
  return {.of = sums.roots()};
}

}  // namespace braid::prune
