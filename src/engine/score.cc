#include "engine/score.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/integers.h"
#include "engine/damage.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

class Scorer {
 public:
  Scorer(Runner& runner, std::span<const ScoreItem> items) : runner_(runner), items_(items), found_(items.size()) {
    for (const ScoreItem& item : items) CHECK(item.first >= 1, "first {}", item.first);
  }

  void train() {
    gather(0, longest(), Phase::prefill);
    if (ids_.empty()) return;
    SeqMap seqs;
    for (const Piece& p : pieces_) seqs.add(p.tokens);
    const Numerics& own = runner_.options().numerics;
    nn::StateView none;
    nn::Run run{
        .ctx = runner_.ctx(), .seqs = seqs, .state = none, .numerics = Numerics::training(own.products, own.exact)};
    models::Model& model = runner_.model();
    nn::Loop loop;
    if (model.config().loop) {
      const LoopOptions& options = runner_.options().loop;
      loop = {.steps = options.steps,
              .states = options.states,
              .start = start_states(runner_.ctx().arena, model.config(), options, seqs)};
      run.loop = &loop;
    }
    const Tensor x = model.forward(run, integers(runner_.ctx().arena, ids_));
    if (wanted_.empty()) return;
    take(model.token_losses(run, runner_.rows(x, wanted_), integers(runner_.ctx().arena, targets_)));
  }

  // Passes of up to `piece` tokens of each sequence.
  void cached(int64_t piece, Phase phase) {
    CHECK(std::ssize(items_) <= runner_.options().sequences, "{} items, {} sequences", items_.size(),
          runner_.options().sequences);
    for (int64_t sequence = 0; sequence < std::ssize(items_); ++sequence) runner_.reset(sequence);
    for (int64_t begin = 0; begin < longest(); begin += piece) {
      gather(begin, piece, phase);
      const Tensor x = runner_.forward(ids_, pieces_);
      if (!wanted_.empty()) take(runner_.token_losses(runner_.rows(x, wanted_), targets_));
    }
    for (int64_t sequence = 0; sequence < std::ssize(items_); ++sequence) runner_.reset(sequence);
  }

  std::vector<std::vector<float>> found() { return std::move(found_); }

 private:
  // The last token of a sequence predicts no given token, so it is not read.
  static int64_t read_of(const ScoreItem& item) { return std::max<int64_t>(0, std::ssize(item.ids) - 1); }
  int64_t longest() const {
    int64_t most = 0;
    for (const ScoreItem& item : items_) most = std::max(most, read_of(item));
    return most;
  }

  // A pass over positions [begin, begin + piece) of every sequence that has any.
  void gather(int64_t begin, int64_t piece, Phase phase) {
    ids_.clear();
    wanted_.clear();
    targets_.clear();
    owners_.clear();
    pieces_.clear();
    for (size_t i = 0; i < items_.size(); ++i) {
      const ScoreItem& item = items_[i];
      const int64_t n = std::min(piece, read_of(item) - begin);
      if (n <= 0) continue;
      const auto row = std::ssize(ids_);
      pieces_.push_back({.sequence = static_cast<int64_t>(i), .tokens = n, .phase = phase});
      ids_.insert(ids_.end(), item.ids.begin() + begin, item.ids.begin() + begin + n);
      for (int64_t t = std::max(begin, item.first - 1); t < begin + n; ++t) {
        wanted_.push_back(row + t - begin);
        targets_.push_back(item.ids[static_cast<size_t>(t) + 1]);
        owners_.push_back(i);
      }
    }
  }

  void take(const Tensor& losses) {
    for (size_t i = 0; i < owners_.size(); ++i) {
      const float loss = losses.view().as<float>()[i];
      if (!std::isfinite(loss)) {
        fail_if_damaged(runner_);
        throw Error(Fault::failed_run,
                    format_message("score", {.what = "a log-probability is not finite", .got = std::to_string(-loss)}));
      }
      found_[owners_[i]].push_back(0.0f - loss);
    }
  }

  Runner& runner_;
  std::span<const ScoreItem> items_;
  std::vector<std::vector<float>> found_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> ids_, targets_;
  std::vector<int64_t> wanted_;  // rows of the pass that predict `targets_`
  std::vector<size_t> owners_;   // the items these belong to
};

}  // namespace

std::vector<std::vector<float>> score(Runner& runner, std::span<const ScoreItem> items, ScorePath path) {
  Scorer scorer(runner, items);
  switch (path) {
    case ScorePath::train:
      scorer.train();
      break;
    case ScorePath::prefill:
      scorer.cached(runner.options().chunk, Phase::prefill);
      break;
    case ScorePath::step:
      scorer.cached(1, Phase::step);
      break;
  }
  return scorer.found();
}

}  // namespace braid::engine
