// Whether models compute the same function of their weights and read the same tokens, so that weights of one can stand
// beside those of another (models/merge.h).
#pragma once
#include <filesystem>
#include <string>

#include "models/config.h"

namespace braid::models {

// A model by what messages call it.
struct NamedConfig {
  std::string name;
  const Config& config;
};

// Error that names the first number which differs, of those that the function depends on: kinds and shapes of blocks,
// epsilons, rotary encoding, routing. What only training, sampling or a cache reads may differ, and so may the longest
// context. Prediction blocks are compared where both have one.
void need_same_function(const NamedConfig& one, const NamedConfig& other);

struct NamedFolder {
  std::string name;
  std::filesystem::path folder;
};

// Error that names the first token or merge which differs, of tokenizer.json, or for models without one of vocab.json,
// merges.txt or tokenizer.model. A file that only one of them has is no difference.
void need_same_vocabulary(const NamedFolder& one, const NamedFolder& other);

}  // namespace braid::models
