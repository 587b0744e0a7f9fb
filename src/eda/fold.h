// One fold of a study: the network and the recipe alone trained on what is not held out, their scores on what is, and
// times beside the tool's.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "eda/study.h"

namespace braid::eda {

struct FoldResult {
  std::vector<Score> scores{}, alone{};  // of the network, and of one that sees no circuits
  int64_t distinct = 0, parameters = 0;  // samples of all designs; of the network
  double first_loss = 0, last_loss = 0;  // means over the first and last epoch
  QorModel::BatchCost batch{};
  // All recipes on the designs that are held out: of one thread, and the tool's CPU time.
  int64_t predicted = 0;
  double predict_seconds = 0, tool_seconds = 0;
};

// None if a signal stopped it (sys/interrupt.h). `done` is told of steps.
std::optional<FoldResult> run_fold(const Labels& labels, const ModelSpec& spec, int64_t fold,
                                   const std::function<void(int64_t, int64_t)>& done);

}  // namespace braid::eda
