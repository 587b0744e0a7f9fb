#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/damage.h"
#include "eval/windows.h"
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
    if (!std::isfinite(loss)) engine::fail_if_damaged(runner);
    sum.add(loss);
  }
}

}  // namespace

void Perplexity::add(double token_loss) {
  if (!std::isfinite(token_loss))
    throw Error(Fault::failed_run,
                format_message("eval", {.what = "a loss is not finite", .got = std::to_string(token_loss)}));
  loss += token_loss;
  square += token_loss * token_loss;
  ++tokens;
}

double Perplexity::value() const { return std::exp(mean()); }

double Perplexity::error() const {
  if (tokens < 2) return 0;
  const double variance = square / static_cast<double>(tokens) - mean() * mean();
  return value() * std::sqrt(std::max(0.0, variance) / static_cast<double>(tokens - 1));
}

int64_t scored_bytes(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const Window> windows) {
  text::StreamDecoder decoder(tokenizer, true);
  std::vector<int64_t> before = {0};  // bytes before token i
  for (int32_t id : ids) before.push_back(before.back() + std::ssize(decoder.push(id)));
  before.back() += std::ssize(decoder.finish());
  int64_t bytes = 0;
  for (const Window& w : windows) bytes += before[static_cast<size_t>(w.end)] - before[static_cast<size_t>(w.first)];
  return bytes;
}

Perplexity perplexity(engine::Runner& runner, std::span<const int32_t> ids, std::span<const Window> windows,
                      std::optional<int32_t> bos, const sys::FunctionRef<bool(int64_t)>& progress) {
  Perplexity sum;
  const auto body = [&](const WindowPiece& p) {
    if (p.begins) runner.reset(0);
    const engine::Piece piece{.tokens = std::ssize(p.tokens)};
    score(runner, runner.forward(p.tokens, {&piece, 1}), p.rows, p.targets, sum);
  };
  read_windows(ids, windows, bos, runner.options().chunk, body, progress);
  return sum;
}

}  // namespace braid::eval
