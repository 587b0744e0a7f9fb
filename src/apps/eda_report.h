// What braid repro eda writes to files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "eda/fold.h"
#include "eda/labels.h"

namespace braid::apps {

struct EdaStudy {
  eda::Labels labels;
  std::vector<int64_t> folds{};
  std::vector<eda::FoldResult> results{};
  std::vector<eda::Score> scores{}, alone{};  // of all folds
};

// The scores of every design.
std::string eda_csv(const EdaStudy& study);
// The regret in area by recipes tried.
std::string eda_svg(const EdaStudy& study);

}  // namespace braid::apps
