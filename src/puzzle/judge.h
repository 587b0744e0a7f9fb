// Replace-one scores (Puzzle, arXiv 2411.19146, section 3.2): how much worse the model is with one block replaced and
// all others as they are, on rows that nothing was fitted to. The residual stream before each block is known, so a pass
// begins at the replaced block. Only tokens with a target count: of conversations the answers, as in training. Sites
// are judged in order, and only the stream of the current one is kept: memory is rows x tokens x width x 8 bytes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "puzzle/parent.h"

namespace braid::puzzle {

// Means over targets.
enum class Metric : uint8_t {
  kl,      // KL(parent || model) of the next token, nats
  loss,    // increase of the loss of the targets, nats
  cosine,  // 1 - cosine of what the head reads
};

// Of a model from the parent.
struct Difference {
  double kl = 0, loss = 0, cosine = 0;
  double of(Metric metric) const { return metric == Metric::kl ? kl : metric == Metric::loss ? loss : cosine; }
};

class Judge {
 public:
  // Rows outlive this. `streams`: only those are wanted, and no scores.
  Judge(Parent& parent, std::span<const data::Batch> rows, int threads, bool streams = false);

  // The parent's loss of the targets.
  double parent_loss() const { return parent_loss_; }
  // The stream of row `i` before the current site, [T, D].
  const std::vector<float>& stream(size_t i) const { return rows_[i].x; }
  size_t rows() const { return rows_.size(); }
  const data::Batch& row(size_t i) const { return *rows_[i].row; }
  size_t site() const { return site_; }
  void advance();  // to the next site

  // Of the block at the current site replaced; null: without it. Error (a failed run) when a score is not finite.
  Difference replaced(models::Model* block);
  // |o - o_p|^2 / |o_p|^2 of the block's output o beside the parent's o_p, both without the stream, over all tokens.
  double local_error(models::Model* block);
  // Of a whole model, whose layers need not be the parent's.
  Difference of(models::Model& model);

 private:
  struct Row {
    const data::Batch* row = nullptr;
    std::vector<float> x{}, last{};  // before the current site, and after the last layer of the parent
  };
  Tensor layers(models::Model& model, const Row& row, const std::vector<float>& x, const Range& layers);
  struct Sums {
    double kl = 0, loss = 0, parent_loss = 0, cosine = 0;
  };
  // Adds what the head of `model` makes of `x`, the stream after its last layer, beside the parent.
  void add(models::Model& model, const Row& row, const Tensor& x, Sums& sums);
  Difference mean(const Sums& sums) const;

  Parent& parent_;
  std::vector<Row> rows_;
  size_t site_ = 0;
  int64_t targets_ = 0;
  double parent_loss_ = 0;
  Arena arena_;
  Ctx ctx_{.arena = arena_};
};

}  // namespace braid::puzzle
