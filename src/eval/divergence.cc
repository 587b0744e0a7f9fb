#include "eval/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/damage.h"
#include "eval/windows.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::eval {
namespace {

constexpr int64_t kRows = 32;  // predictions whose logits exist at a time: 16 MB for a vocabulary of 131,072

struct Row {
  double model_loss = 0, base_loss = 0, kl = 0;
  bool same_top = false;
};

// Index of the largest logit, and log-sum-exp.
struct Normal {
  int64_t top = 0;
  double log_sum = 0;
};
Normal normal_of(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float v : logits) sum += std::exp(static_cast<double>(v - *top));
  return {top - logits.begin(), static_cast<double>(*top) + std::log(sum)};
}

Row compare(std::span<const float> model, std::span<const float> base, int32_t target) {
  const Normal m = normal_of(model), b = normal_of(base);
  double kl = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double log_p = static_cast<double>(base[i]) - b.log_sum;
    if (log_p > -50) kl += std::exp(log_p) * (log_p - (static_cast<double>(model[i]) - m.log_sum));
  }
  const auto t = static_cast<size_t>(target);
  return {m.log_sum - static_cast<double>(model[t]), b.log_sum - static_cast<double>(base[t]), kl, m.top == b.top};
}

// Sums over tokens, in their order.
class Tally {
 public:
  void add(const Row& row) {
    out_.model.add(row.model_loss);
    out_.base.add(row.base_loss);
    if (!std::isfinite(row.kl))  // of NaN, max would make 0
      throw Error(Fault::failed_run,
                  format_message("eval --kl", {.what = "a divergence is not finite", .got = std::to_string(row.kl)}));
    product_ += row.model_loss * row.base_loss;
    out_.kl.push_back(static_cast<float>(std::max(0.0, row.kl)));
    out_.same_top += row.same_top;
  }
  Divergence finish() {
    std::sort(out_.kl.begin(), out_.kl.end());
    const Perplexity &m = out_.model, &b = out_.base;
    const auto n = static_cast<double>(m.tokens);
    if (m.tokens < 2) return std::move(out_);
    // The logarithm of the ratio is the mean of the differences of losses.
    const double mean = m.mean() - b.mean(), square = (m.square - 2 * product_ + b.square) / n;
    out_.ratio_error = out_.ratio() * std::sqrt(std::max(0.0, square - mean * mean) / (n - 1));
    return std::move(out_);
  }

 private:
  Divergence out_;
  double product_ = 0;
};

// Hidden states of a piece, by which the state of sequence 0 advances.
Tensor read(engine::Runner& runner, const WindowPiece& p) {
  if (p.begins) runner.reset(0);
  const engine::Piece piece{.tokens = std::ssize(p.tokens)};
  return runner.forward(p.tokens, {&piece, 1});
}

void compare_rows(engine::Runner& model, engine::Runner& base, const WindowPiece& p, Tally& tally) {
  const Tensor of_model = read(model, p), of_base = read(base, p);
  for (int64_t begin = 0; begin < std::ssize(p.rows); begin += kRows) {
    const int64_t n = std::min(kRows, std::ssize(p.rows) - begin);
    const auto part = std::span(p.rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    const Tensor q = model.logits(model.rows(of_model, part)), b = base.logits(base.rows(of_base, part));
    const auto vocab = static_cast<size_t>(q.dim(1));
    std::vector<Row> rows(static_cast<size_t>(n));
    sys::parallel_tasks(model.ctx().threads, n, [&](int64_t r) {
      rows[static_cast<size_t>(r)] = compare({q.view().as<float>(r), vocab}, {b.view().as<float>(r), vocab},
                                             p.targets[static_cast<size_t>(begin + r)]);
    });
    for (const Row& row : rows) {
      if (!std::isfinite(row.kl + row.model_loss + row.base_loss)) {
        engine::fail_if_damaged(model);
        engine::fail_if_damaged(base);
      }
      tally.add(row);
    }
  }
}

}  // namespace

double Divergence::mean_kl() const {
  double sum = 0;
  for (float v : kl) sum += static_cast<double>(v);
  return kl.empty() ? 0 : sum / static_cast<double>(kl.size());
}

double Divergence::kl_error() const {
  if (kl.size() < 2) return 0;
  const double mean = mean_kl();
  double square = 0;
  for (float v : kl) square += std::pow(static_cast<double>(v) - mean, 2);
  const auto n = static_cast<double>(kl.size());
  return std::sqrt(square / n / (n - 1));
}

float Divergence::kl_at(double fraction) const {
  if (kl.empty()) return 0;
  return kl[static_cast<size_t>(fraction * static_cast<double>(kl.size() - 1))];
}

double Divergence::same_top_share() const {
  return kl.empty() ? 0 : static_cast<double>(same_top) / static_cast<double>(kl.size());
}

Divergence divergence(engine::Runner& model, engine::Runner& base, std::span<const int32_t> ids,
                      std::span<const Window> windows, std::optional<int32_t> bos,
                      const sys::FunctionRef<bool(int64_t)>& progress) {
  if (model.config().vocab != base.config().vocab) {
    fail("--kl", {.what = "the base has a different vocabulary",
                  .got = fmt::format("{} tokens", base.config().vocab),
                  .expected = fmt::format("{}", model.config().vocab)});
  }
  Tally tally;
  const int64_t chunk = std::min(model.options().chunk, base.options().chunk);
  read_windows(
      ids, windows, bos, chunk, [&](const WindowPiece& p) { compare_rows(model, base, p, tally); }, progress);
  return tally.finish();
}

}  // namespace braid::eval
