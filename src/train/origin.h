// What a recipe starts from: the config of its model, where its weights and its tokenizer are, and what a step of it
// costs. Inconsistencies are an Error before anything is read or written.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "models/adapters.h"
#include "models/config.h"
#include "models/count.h"
#include "train/recipe.h"

namespace braid::train {

// Operations of a step per token: 6 for every active parameter of a product, plus attention and scan over sequences of
// `length`, once forward and twice backward (docs/internals/train.md, Operations).
double flops_per_token(const models::Config& config, int64_t length);
double flops_per_token(const models::Config& config, const models::Parameters& n,
                       int64_t length);  // n: counted already

// The config that a recipe starts from, without any weights; dropout and steps of prediction are the recipe's.
models::Config config_of(const Recipe& recipe);

// Error if the config needs what training does not support: dropout of attention probabilities.
void check_trainable(const models::Config& config);

// Words of a recipe that have no effect, a line each: whatever is trained, and with this model.
std::vector<std::string> idle_words(const Recipe& recipe);
std::vector<std::string> idle_words(const Recipe& recipe, const models::Config& config);

// Bytes of a run besides its passes, on each of its ranks.
struct StateBytes {
  double masters = 0, working = 0, gradients = 0, moments = 0,
         mean = 0;  // working: the rounded copy that products read
  double sum() const { return masters + working + gradients + moments + mean; }
};
// How ranks divide them (parallel.zero, or z of a grid): of the values that a rank has, and of those of its experts
// where other ranks divide these, the ranks, the largest layer's and those of no layer, which a pass has whole.
struct StateShares {
  struct Part {
    double ranks = 1, values = 0, layer = 0, rest = 0;
  };
  Part dense{}, experts{};

  double values() const { return dense.values + experts.values; }
};
// `config`: as a rank has it (models/cut.h).
StateShares state_shares(const Recipe& recipe, const models::Config& config, int ranks);
// Of `trained` values.
StateBytes state_bytes(const Recipe& recipe, double trained, const StateShares& shares = {});
// How often a run holds what it allocates: twice where a copy of the process may have to keep all that training changes
// while it writes (checkpoint.async), once otherwise.
double copies_of(const Recipe& recipe);
// Error, with what of the recipe to change, when state and passes (0: not known yet) are more than `available`.
void need_memory(const Recipe& recipe, double state, double passes, int64_t available);

// Error for rows longer than the positions that the model has learned, where a row is one sequence. Otherwise its
// documents begin at the first position again.
void need_positions(const Recipe& recipe, const models::Config& config, int64_t length);
// Error when `accumulate` asks for more parts than a batch of `rows` rows has, for each rank of as many as share it.
void need_rows(const Recipe& recipe, int64_t rows, int64_t shares = 1);

// The adapters of its [lora] table.
models::AdapterSpec adapter_spec(const Recipe& recipe);

// Random weights of the recipe's config in out/init. They are written again unless `out` has a checkpoint and they
// belong to this config, seed and tokenizer.
std::filesystem::path origin_folder(const Recipe& recipe);
void make_origin(const Recipe& recipe, int threads);

// Whose tokenizer and chat template the data is read with; empty if it is not text.
std::filesystem::path language_folder(const Recipe& recipe);

}  // namespace braid::train
