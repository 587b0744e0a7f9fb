// GRPO's data: every step poses problems of environments, has the engine answer each several times with the weights of
// the last step, and gives the policy task (policy.h) the answers with their rewards and log-probabilities. With
// `exact` these have the bits that training computes for them.
//
// A step is a function of its number, the weights and the pass rates so far, so that a run that is resumed continues
// as it would have: checkpoints have the rates, and with `ahead = 1` the answers that are already there, which the
// weights before the last update gave.
//
// Shao et al. 2024 (DeepSeekMath), section 4; Yu et al. 2025 (DAPO), for groups drawn again and answers cut.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/language.h"
#include "environments/environment.h"
#include "models/model.h"
#include "train/curriculum.h"
#include "train/generator.h"
#include "train/group_exchange.h"
#include "train/groups.h"
#include "train/objective.h"
#include "train/recipe.h"

namespace braid::train {

// Does a recipe generate its answers?
inline bool generates(const Recipe& recipe) { return !recipe.rollout.environments.empty(); }
// Error when [rollout] does not fit itself or the rest of the recipe.
void check_rollout(const Recipe& recipe);
// Rows of a step and the most tokens of one: of a prompt and its answer.
int64_t rollout_rows(const Recipe& recipe);
int64_t rollout_length(const Recipe& recipe);

class Rollouts {
 public:
  // Opens the environments and the tokenizer and template of `language`. `ranks`: those that divide the answers of a
  // step, or null; all of them draw. It and the recipe outlive this.
  Rollouts(const Recipe& recipe, const std::filesystem::path& language, int64_t vocabulary, comm::Group* ranks);
  Rollouts(const Rollouts&) = delete;
  Rollouts& operator=(const Rollouts&) = delete;
  ~Rollouts();

  // Who answers: the model in training, of which `write` makes a folder.
  void start(std::shared_ptr<models::Model> live, std::function<void(const std::filesystem::path&)> write, int threads);
  // The answers of a step, from 0, as its batch; they are also appended to rollouts.jsonl.
  void draw(int64_t step, data::Batch& out);
  // With policy.replay_routes: the experts of rows of the last batch, by their ids, one row after the other.
  void routes_of(std::span<const int64_t> row_ids, nn::Routes& out) const;
  // What is logged of them.
  void report(Sums& sums);

  void write_state(const std::filesystem::path& folder) const;
  void read_state(const std::filesystem::path& folder);

 private:
  struct Posed {  // a problem and its group
    environments::Problem problem;
    Group group;
    bool thinking = false;
  };
  StepRollouts generate(int64_t step);
  void generate_ahead(int64_t step);
  std::vector<Group> own_groups(int64_t step, int64_t first, int64_t count);
  std::vector<Posed> pose(int64_t step, int64_t first, int64_t count);
  std::string prompt_of(const environments::Problem& problem, const std::string& environment, bool think) const;
  void answer(int64_t step, std::vector<Posed>& posed);
  void judge(Posed& posed);
  void charge(Group& group) const;
  void note(const std::vector<Group>& groups, StepRollouts& out);
  std::vector<Group> looked_at_again(std::vector<Group>& groups);
  void score(std::vector<Group>& groups);
  void route(std::vector<Group>& groups);
  void log(const StepRollouts& rollouts);

  const Recipe& recipe_;
  data::LanguageFiles files_;
  data::Language language_;
  GroupExchange exchange_;
  std::vector<std::string> labels_;  // of the environments, in logs
  std::vector<std::unique_ptr<environments::Environment>> environments_;
  std::optional<Curriculum> curriculum_;
  std::unique_ptr<Generator> generator_;
  std::optional<StepRollouts> next_;  // generated ahead
  std::vector<nn::Routes> routes_;    // of the rows of the last batch
  int64_t first_row_ = 0;             // the id of the first of them
  std::vector<Metric> metrics_;       // of the last step
  std::set<std::string> names_;       // of metrics: what sums are called, for as long as this lives
  int64_t failures_ = 0;              // of environments, in a row
  std::FILE* lines_ = nullptr;
};

}  // namespace braid::train
