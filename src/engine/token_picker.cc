#include "engine/token_picker.h"

#include <algorithm>
#include <utility>

namespace braid::engine {

TokenPicker::TokenPicker(const GenerateOptions& options, std::vector<int32_t> seen, std::span<const int64_t> eos)
    : options_(options),
      seen_(std::move(seen)),
      eos_(eos),
      limit_(options.budget),
      first_(static_cast<uint64_t>(std::max(std::ssize(seen_), options.position))) {}

int32_t TokenPicker::next(std::span<const float> logits) {
  const size_t n = ids_.size();
  const int32_t id = limit_.next(sample(logits, options_.sampling, seen_, first_ + n, n));
  if (options_.logprobs >= 0) logprobs_.push_back(logprobs_of(logits, id, options_.logprobs));
  ids_.push_back(id);
  seen_.push_back(id);
  ended_ = !options_.ignore_eos && std::find(eos_.begin(), eos_.end(), id) != eos_.end();
  return id;
}

void TokenPicker::take(Generated& out) {
  out.ids = std::move(ids_);
  out.logprobs = std::move(logprobs_);
}

}  // namespace braid::engine
