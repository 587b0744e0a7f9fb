#include "puzzle/judge.h"

#include <algorithm>
#include <cmath>

#include "core/integers.h"
#include "puzzle/stream.h"
#include "sys/error.h"

namespace braid::puzzle {
namespace {

constexpr Numerics kJudged = Numerics::serving(DType::f32);

std::vector<double> log_softmax(std::span<const float> logits) {
  const auto most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - most);
  const double total = most + std::log(sum);
  std::vector<double> out;
  out.reserve(logits.size());
  for (const float v : logits) out.push_back(static_cast<double>(v) - total);
  return out;
}

double kl_of(std::span<const double> p, std::span<const double> q) {
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  return kl;
}

double cosine_of(std::span<const float> a, std::span<const float> b) {
  double both = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    both += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0 && bb > 0 ? both / std::sqrt(aa * bb) : 1;
}

}  // namespace

Judge::Judge(Parent& parent, std::span<const data::Batch> rows, int threads, bool streams) : parent_(parent) {
  ctx_.threads = threads;
  const auto depth = std::ssize(parent.split().layers);
  Sums sums;
  for (const data::Batch& row : rows) {
    Row& r = rows_.emplace_back(Row{.row = &row});
    r.x = copied(layers(parent.model(), r, {}, {0, 0}));
    if (streams) continue;
    r.last = copied(layers(parent.model(), r, r.x, {0, depth}));
    targets_ += row.trained;
    add(parent.model(), r, matrix(ctx_, r.last, std::ssize(row.ids)), sums);
  }
  parent_loss_ = sums.parent_loss / static_cast<double>(std::max<int64_t>(1, targets_));
}

Tensor Judge::layers(models::Model& model, const Row& row, const std::vector<float>& x, const Range& layers) {
  const auto tokens = std::ssize(row.row->ids);
  return run_layers(ctx_, model, row.row->seqs, integers(arena_, row.row->ids),
                    x.empty() ? Tensor() : matrix(ctx_, x, tokens), layers, kJudged);
}

void Judge::advance() {
  for (Row& r : rows_) r.x = copied(layers(parent_.model(), r, r.x, {static_cast<int64_t>(site_), 1}));
  ++site_;
}

// A few tokens at a time, as logits are large.
void Judge::add(models::Model& model, const Row& row, const Tensor& x, Sums& sums) {
  constexpr int64_t kRows = 64;
  const Tensor base = matrix(ctx_, row.last, x.dim(0));
  for (int64_t begin = 0; begin < x.dim(0); begin += kRows) {
    const int64_t n = std::min(kRows, x.dim(0) - begin);
    const SeqMap seqs = SeqMap::one(n);
    nn::StateView state;
    nn::Run run{.ctx = ctx_, .seqs = seqs, .state = state, .numerics = kJudged};
    const Tensor xp = base.slice(0, begin, n), xq = x.slice(0, begin, n);
    const Tensor hp = parent_.model().final_hidden(run, xp), hq = model.final_hidden(run, xq),
                 lp = parent_.model().logits(run, xp), lq = model.logits(run, xq);
    const auto vocab = static_cast<size_t>(lp.dim(1)), width = static_cast<size_t>(hp.dim(1));
    for (int64_t r = 0; r < n; ++r) {
      const int32_t target = row.row->targets[static_cast<size_t>(begin + r)];
      if (target < 0) continue;
      const std::vector<double> p = log_softmax({lp.view().as<float>(r), vocab}),
                                q = log_softmax({lq.view().as<float>(r), vocab});
      sums.kl += kl_of(p, q);
      sums.cosine += 1 - cosine_of({hp.view().as<float>(r), width}, {hq.view().as<float>(r), width});
      sums.parent_loss -= p[static_cast<size_t>(target)];
      sums.loss -= q[static_cast<size_t>(target)];
    }
  }
}

Difference Judge::mean(const Sums& sums) const {
  const auto targets = static_cast<double>(std::max<int64_t>(1, targets_));
  const Difference d{.kl = std::max(0.0, sums.kl / targets),
                     .loss = (sums.loss - sums.parent_loss) / targets,
                     .cosine = sums.cosine / targets};
  if (!std::isfinite(d.kl) || !std::isfinite(d.loss) || !std::isfinite(d.cosine))
    throw Error(Fault::failed_run,
                format_message("search", {.what = fmt::format("a score of block {} is not finite", site_),
                                          .hint = "another text, or a sound model"}));
  return d;
}

Difference Judge::replaced(models::Model* block) {
  const auto site = static_cast<int64_t>(site_), rest = std::ssize(parent_.split().layers) - site - 1;
  Sums sums;
  for (const Row& r : rows_) {
    const Tensor x = block ? layers(*block, r, r.x, {site, 1}) : matrix(ctx_, r.x, std::ssize(r.row->ids));
    add(parent_.model(), r,
        rest > 0 ? run_layers(ctx_, parent_.model(), r.row->seqs, {}, x, {site + 1, rest}, kJudged) : x, sums);
  }
  return mean(sums);
}

double Judge::local_error(models::Model* block) {
  const auto site = static_cast<int64_t>(site_);
  double error = 0, whole = 0;
  for (const Row& r : rows_) {
    const Tensor parent = layers(parent_.model(), r, r.x, {site, 1});
    const Tensor own = block ? layers(*block, r, r.x, {site, 1}) : matrix(ctx_, r.x, std::ssize(r.row->ids));
    const float *p = parent.view().as<float>(), *q = own.view().as<float>();
    for (size_t i = 0; i < r.x.size(); ++i) {
      const double output = static_cast<double>(p[i]) - static_cast<double>(r.x[i]),
                   miss = static_cast<double>(q[i]) - static_cast<double>(p[i]);
      error += miss * miss;
      whole += output * output;
    }
  }
  return whole > 0 ? error / whole : 0;
}

Difference Judge::of(models::Model& model) {
  Sums sums;
  for (const Row& r : rows_) {
    const Tensor x = run_layers(ctx_, model, r.row->seqs, integers(arena_, r.row->ids), {},
                                {0, std::ssize(model.config().layers)}, kJudged);
    add(model, r, x, sums);
  }
  return mean(sums);
}

}  // namespace braid::puzzle
