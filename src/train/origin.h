// What a recipe starts from: the config of its model, where its weights and its tokenizer lie, and what a step of it
// costs. What does not fit together is an Error before anything is read or written.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "models/adapters.h"
#include "models/config.h"
#include "train/recipe.h"

namespace braid::train {

// Arithmetic of a step for each of its tokens: 6 for every parameter of a product that a token meets, and what
// attention and scan do besides over sequences of `length` (training.md 1.3), forward and twice again backward.
double flops_per_token(const models::Config& config, int64_t length);

// The config that a recipe starts from, without any weights; dropout and steps of prediction are the recipe's.
models::Config config_of(const Recipe& recipe);

// Error where the config asks for what no step does: dropout of attention's probabilities.
void check_trainable(const models::Config& config);

// Words of a recipe that do nothing with this model and this number of steps, a line each.
std::vector<std::string> idle_words(const Recipe& recipe, const models::Config& config);

// Bytes of a run besides its passes: masters, what products read, gradients, moments and running mean of so many
// trained numbers.
double state_bytes(const Recipe& recipe, double trained);
// Error, with what to try, when state and passes (0: not known yet) are more than `available`.
void need_memory(double state, double passes, int64_t available);

// Error when `accumulate` asks for more parts than a batch of so many rows has.
void need_rows(const Recipe& recipe, int64_t rows);

// What its [lora] asks for.
models::AdapterSpec adapter_spec(const Recipe& recipe);

// Random weights of the recipe's config in out/init. They are made again unless a checkpoint of `out` says that a run
// began with them, and they are of this config, seed and tokenizer.
std::filesystem::path make_origin(const Recipe& recipe, int threads);

// Whose tokenizer and chat template the data is read with; empty where it is no text.
std::filesystem::path language_folder(const Recipe& recipe);

}  // namespace braid::train
