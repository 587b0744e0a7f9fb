#include "engine/token_picker.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sys/error.h"

namespace braid::engine {
namespace {

constexpr float kNoChance = -std::numeric_limits<float>::infinity();

}  // namespace

TokenPicker::TokenPicker(const GenerateOptions& options, std::vector<int32_t> seen, std::span<const int64_t> eos)
    : options_(options),
      seen_(std::move(seen)),
      eos_(eos),
      limit_(options.budget, options.thinking),
      first_(static_cast<uint64_t>(std::max(std::ssize(seen_), options.position))),
      thinking_(options.thinking) {
  if (options_.constraint) constraint_.emplace(options_.constraint, options_.thinking);
}

int32_t TokenPicker::sampled(std::span<const float> logits) const {
  const size_t n = ids_.size();
  return sample(logits, options_.sampling, seen_, first_ + n, n);
}

// No end token too early, nor then and later a tag that has no place in an answer, as long as there is another.
int32_t TokenPicker::drawn(std::span<const float> logits) const {
  if (options_.tokens_min == 0) return sampled(logits);
  std::vector<float> masked(logits.begin(), logits.end());
  const auto mask = [&](int64_t id) {
    if (id >= 0 && id < std::ssize(masked)) masked[static_cast<size_t>(id)] = kNoChance;
  };
  if (std::ssize(ids_) < options_.tokens_min) {
    std::ranges::for_each(eos_, mask);
    std::ranges::for_each(options_.stop_ids, mask);
  }
  if (thinking_ == Thinking::none) mask(options_.think_begin);
  if (thinking_ != Thinking::open) mask(options_.think_end);
  const bool others = std::ranges::any_of(masked, [](float logit) { return logit != kNoChance; });
  return sampled(others ? masked : logits);
}

std::optional<int32_t> TokenPicker::guess(std::span<const float> logits, std::span<const int32_t> ahead) const {
  // The prompt, which may be long, counts for one penalty alone.
  std::vector<int32_t> seen = options_.sampling.repeat_penalty != 1 ? seen_ : ids_;
  seen.insert(seen.end(), ahead.begin(), ahead.end());
  const size_t n = ids_.size() + ahead.size();
  try {
    return sample(logits, options_.sampling, seen, first_ + n, n);
  } catch (const Error&) {  // of the logits
    return std::nullopt;
  }
}

// A token that ends the thinking and goes on with what is not allowed is refused, and another drawn.
int32_t TokenPicker::constrained(std::span<const float> logits) {
  std::vector<float> masked(logits.begin(), logits.end());
  constraint_->mask(masked, options_.tokens_max < 0 ? -1 : options_.tokens_max - std::ssize(ids_));
  int32_t id = drawn(masked);
  while (!constraint_->allows(id)) {
    masked[static_cast<size_t>(id)] = kNoChance;
    id = drawn(masked);
  }
  return id;
}

int32_t TokenPicker::next(std::span<const float> logits) {
  const int32_t id = limit_.next(constraint_ ? constrained(logits) : drawn(logits));
  if (constraint_) constraint_->push(id);
  const double temperature = options_.sampling.temperature;
  const bool as_drawn = options_.drawn_logprobs && temperature > 0;
  if (options_.logprobs >= 0)
    logprobs_.push_back(logprobs_of(logits, id, options_.logprobs, as_drawn ? temperature : 1));
  if (id == options_.think_begin && thinking_ == Thinking::may_open) thinking_ = Thinking::open;
  if (id == options_.think_end) thinking_ = Thinking::none;
  if (thinking_ == Thinking::may_open && std::ssize(ids_) > 1) thinking_ = Thinking::none;  // beyond white space
  ids_.push_back(id);
  seen_.push_back(id);
  const bool ends = !options_.ignore_eos || (constraint_ && !options_.constraint->may_be_cut());
  ended_ = (ends && std::ranges::find(eos_, id) != eos_.end()) ||
           std::ranges::find(options_.stop_ids, id) != options_.stop_ids.end();
  return id;
}

void TokenPicker::take(Generated& out) {
  out.ids = std::move(ids_);
  out.logprobs = std::move(logprobs_);
}

}  // namespace braid::engine
