#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "sys/error.h"

namespace braid::eval {
namespace {

// Adds the losses of `targets`, predicted by the given rows of x.
void score(engine::Runner& runner, const Tensor& x, std::span<const int64_t> rows, std::span<const int32_t> targets,
           Perplexity& sum) {
  if (rows.empty()) return;
  const Tensor losses = runner.token_losses(runner.rows(x, rows), targets);
  for (int64_t i = 0; i < losses.dim(0); ++i) {
    const auto loss = static_cast<double>(losses.view().as<float>()[i]);
    if (!std::isfinite(loss))
      throw Error(Fault::failed_run,
                  format_message("eval", {.what = "a loss is not finite", .got = std::to_string(loss)}));
    sum.loss += loss;
    sum.square += loss * loss;
    ++sum.tokens;
  }
}

}  // namespace

std::vector<Window> plan_windows(int64_t tokens, int64_t window, int64_t stride) {
  const int64_t n = std::min(window, tokens);
  std::vector<Window> list;
  if (stride > 0) {
    if (n >= 2) list.push_back({0, n, 1});
    while (!list.empty() && list.back().end < tokens) {
      const int64_t end = std::min(list.back().end + stride, tokens);
      list.push_back({end - n, end, list.back().end});
    }
  } else {
    for (int64_t begin = 0; n >= 3 && begin + n <= tokens; begin += n)
      list.push_back({begin, begin + n, begin + n / 2 + 1});
  }
  if (list.empty()) {
    fail("eval", {.what = "too few tokens to score any",
                  .got = fmt::format("{} in windows of {}", tokens, window),
                  .expected = "at least 3",
                  .hint = "a longer text"});
  }
  return list;
}

double Perplexity::value() const { return std::exp(mean()); }

double Perplexity::error() const {
  if (tokens < 2) return 0;
  const double variance = square / static_cast<double>(tokens) - mean() * mean();
  return value() * std::sqrt(std::max(0.0, variance) / static_cast<double>(tokens - 1));
}

Perplexity perplexity(engine::Runner& runner, std::span<const int32_t> ids, std::span<const Window> windows,
                      std::optional<int32_t> bos, const sys::FunctionRef<bool(int64_t)>& progress) {
  Perplexity sum;
  int64_t read = 0;
  for (const Window& w : windows) {
    std::vector<int32_t> tokens(ids.begin() + w.begin, ids.begin() + w.end);
    if (bos) tokens[0] = *bos;
    runner.reset(0);
    int64_t at = w.begin;  // place in the text of the first row of the next piece
    bool more = true;
    for (size_t begin = 0; more && begin < tokens.size();) {
      const auto n = std::min(static_cast<size_t>(runner.options().chunk), tokens.size() - begin);
      const engine::Piece piece{.tokens = static_cast<int64_t>(n)};
      const Tensor x = runner.forward(std::span(tokens).subspan(begin, n), {&piece, 1});
      std::vector<int64_t> rows;
      std::vector<int32_t> targets;
      for (int64_t row = 0; row < static_cast<int64_t>(n); ++row) {
        const int64_t target = at + row + 1;
        if (target < w.first || target >= w.end) continue;
        rows.push_back(row);
        targets.push_back(ids[static_cast<size_t>(target)]);
      }
      score(runner, x, rows, targets, sum);
      begin += n;
      at += static_cast<int64_t>(n);
      read += static_cast<int64_t>(n);
      more = progress(read);
    }
    if (!more) break;
  }
  return sum;
}

}  // namespace braid::eval
