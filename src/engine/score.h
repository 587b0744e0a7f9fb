// Natural log-probabilities of given tokens, each predicted from those before it in its sequence, computed in one of
// three ways. Under Numerics::exact the three give the same bits, alone or in a batch: a sampler that steps sees
// the log-probabilities that the training objective computes.
//   train    the forward pass of training: whole sequences, no cache, training's Numerics
//   prefill  through the caches, RunnerOptions::chunk tokens of each sequence per pass
//   step     through the caches, one token of each sequence per pass
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace braid::engine {

enum class ScorePath : uint8_t { train, prefill, step };

struct ScoreItem {
  std::vector<int32_t> ids{};
  int64_t first = 1;  // the tokens from here on are scored; at least 1
};

// Computes the items together; with prefill and step each is a sequence of the runner, which must exist and is reset.
// One vector per item, of ids.size() - first values. Error (a failed run) when a log-probability is not finite.
std::vector<std::vector<float>> score(Runner& runner, std::span<const ScoreItem> items, ScorePath path);

}  // namespace braid::engine
