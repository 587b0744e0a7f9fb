// The rows of a sweep: what a branch cost and its loss, as JSON in the branch's folder and as the CSV that
// `braid law fit` reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/sweep_shape.h"

namespace braid::apps {

struct SweepRow {
  SweepShape shape{};
  int64_t steps = 0;
  double params = 0, active = 0, embedding = 0;  // as models/count.h counts them
  double tokens = 0, flops = 0;                  // of a run that takes this branch alone
  double loss = 0;                               // held out, nats
  double floor = 0;                              // entropy of the source; 0: not known
  double lr = 0;
  double seconds = 0;  // to train for those tokens, at the rate of the branch's steps
};

constexpr const char* kSweepRow = "row.json";  // in the folder of a branch

// Every row below the folder of a sweep by params and steps, those of other grids too.
std::vector<SweepRow> rows_in(const std::filesystem::path& dir);
std::string csv_of(const std::vector<SweepRow>& rows);
std::string json_of(const SweepRow& row);

}  // namespace braid::apps
