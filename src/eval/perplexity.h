// Perplexity of a text: exp of the mean loss of its tokens, each predicted from the tokens before it in its window.
//   without a stride  adjacent windows, and the second half of each is scored, so that every scored token has at
//                     least half a window before it; an unfinished last window is left out (what llama-perplexity does)
//   with a stride     windows one stride apart, and the last stride of each is scored: every token of the text but the
//                     first counts once, and the context is never shorter than window - stride after the first window
// Every window starts from an empty state. If the tokenizer begins a text with BOS, it replaces the first token of
// every window.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/runner.h"
#include "sys/function_ref.h"
#include "text/tokenizer.h"

namespace braid::eval {

struct Window {
  int64_t begin = 0, end = 0;  // tokens of the text that are read
  int64_t first = 0;           // scored are [first, end); first > begin
};

// `window` is capped at the number of tokens; stride 0: none. Error when no token would be scored.
std::vector<Window> plan_windows(int64_t tokens, int64_t window, int64_t stride);

struct Perplexity {
  int64_t tokens = 0;           // scored
  double loss = 0, square = 0;  // sums over them, in nats

  void add(double token_loss);  // Error (a failed run) when it is not finite
  double mean() const { return loss / static_cast<double>(tokens); }
  double value() const;
  double error() const;  // standard error of value(), assuming independent losses
};

// Reads the windows of `ids` one after the other in sequence 0. `progress` receives the tokens read so far; if it
// returns false, reading stops and the result covers what was scored.
Perplexity perplexity(engine::Runner& runner, std::span<const int32_t> ids, std::span<const Window> windows,
                      std::optional<int32_t> bos, const sys::FunctionRef<bool(int64_t)>& progress);

// Bytes of text that the scored tokens stand for. A token that ends inside a character counts none of it, the one that
// completes it all.
int64_t scored_bytes(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const Window> windows);

}  // namespace braid::eval
