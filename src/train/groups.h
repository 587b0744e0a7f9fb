// Groups of answers to one problem each, as a step of rollouts has them; the batch they are trained as, and their JSON:
// lines for people and for `data.kind = "rollouts"`, and the state of a run that is one step ahead.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/batch.h"
#include "io/json.h"
#include "nn/run.h"
#include "train/curriculum.h"

namespace braid::train {

struct Sample {
  std::vector<int32_t> ids{};     // the end token included
  std::vector<float> logprobs{};  // of each, under what generated it
  std::vector<float> trainer{};   // and under the weights in training at that time; empty: not asked for
  nn::Routes routes{};            // experts of every token that is read, the prompt's too; empty: not asked for
  std::string text{};             // what the environment judged
  double reward = 0;
  bool cut = false;  // by the limit of tokens
};

struct Group {
  int64_t number = 0;  // in its step
  Curriculum::Choice of{};
  std::string environment{}, question{}, error{};  // error: of the environment: the group is not trained
  std::vector<int32_t> prompt{};
  std::vector<Sample> answers{};

  bool alike() const;     // all rewards are equal: no advantage
  double passed() const;  // share of the answers with a reward of at least 1
};

// A sum that is logged, and what it is a mean over; 0: as it is.
struct Metric {
  std::string name;
  double sum = 0, count = 0;
};

struct StepRollouts {
  int64_t step = 0;  // from 0
  std::vector<Group> groups{};
  std::vector<Metric> metrics{};

  Metric& metric(const std::string& name);  // added if it is missing
  void add(const std::string& name, double sum, double count) {
    Metric& to = metric(name);
    to.sum += sum;
    to.count += count;
  }
};

// Rows of at most `length` tokens, an answer each. With `mask_cut` answers that were cut have no targets.
void put_batch(const StepRollouts& rollouts, int64_t length, bool mask_cut, data::Batch& out);

// A line for each answer, or for the error of a group.
std::string lines_of(const StepRollouts& rollouts);

// What rollouts have of every token, one answer after the other: as JSON it would be too long to read.
struct TokenArrays {
  std::vector<int32_t> ids{}, routes{};  // prompts are ids, too
  std::vector<float> logprobs{}, trainer{};
};
void write_tokens(const TokenArrays& tokens, const std::filesystem::path& file);
TokenArrays read_tokens(const std::filesystem::path& file);

inline constexpr io::JsonLimits kRolloutLimits{.bytes = int64_t{1} << 30,
                                               .values = int64_t{1} << 24};  // texts of answers

// Adds to `tokens` what the state has the lengths of alone.
nlohmann::ordered_json state_of(const StepRollouts& rollouts, TokenArrays& tokens);
// Error where ids are outside the vocabulary, or numbers do not fit. States of older checkpoints have all in JSON.
StepRollouts rollouts_of(const io::Json& state, const TokenArrays& tokens, int64_t vocabulary);

}  // namespace braid::train
