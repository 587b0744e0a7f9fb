// Answers by the engine in the process that trains: of the model in training itself, whose handle the engine shares, or
// of a copy of its weights in another format, quantised again for every step.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "engine/score.h"
#include "models/model.h"
#include "nn/run.h"
#include "train/recipe.h"

namespace braid::train {

class Generator {
 public:
  // `live`: the model in training; `write` makes a folder of it; `copy`: where a quantised copy may be while this
  // lives; `context`: tokens of prompt and answer.
  Generator(const Recipe& recipe, std::shared_ptr<models::Model> live,
            std::function<void(const std::filesystem::path&)> write, const std::filesystem::path& copy, int64_t context,
            int threads);
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  ~Generator();

  // From here on with the weights as they are now. What was read with others is forgotten.
  void renew();
  // In their order. Error where a logit is not finite. Throws sys::Interrupted soon after a signal.
  std::vector<engine::Generated> answers(std::vector<engine::Request> requests);
  // The experts that the weights which answer choose for each token but the last, by one pass over all of them: under
  // `exact` those of the steps that generated them, otherwise equal up to rounding.
  nn::Routes routes(std::span<const int32_t> ids);
  // Log-probabilities by a pass of training over the weights as they are now.
  std::vector<std::vector<float>> score(const std::vector<engine::ScoreItem>& items);
  // The same of one item with these experts.
  std::vector<float> score(const engine::ScoreItem& item, const nn::Routes& routes);
  std::span<const int64_t> ends() const { return live_->config().eos; }

 private:
  engine::RunnerOptions options(int64_t sequences) const;

  const Recipe& recipe_;
  std::shared_ptr<models::Model> live_;
  std::function<void(const std::filesystem::path&)> write_;
  int64_t context_;
  int threads_;
  std::filesystem::path copy_;  // the folder of the copy; empty: none
  std::unique_ptr<engine::Runner> runner_, scorer_;
};

}  // namespace braid::train
