// The part of braid bench --tune that --train-tokens asks for: the blocking of every training product of a model
// (tune/blocking.h), as lines of the profile.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "tune/blocking.h"
#include "tune/tune.h"

namespace braid::apps {

// Layers that linear multiplies by, not heads or experts, with that many tokens in the class of `options.x`.
std::vector<tune::BlockingFinding> tune_training(engine::Runner& runner, int64_t tokens, const tune::Options& options,
                                                 const tune::Progress& progress);

// Those found, and those of an earlier profile of this machine that were not measured now.
std::string blocking_lines(const std::vector<tune::BlockingFinding>& findings);
nlohmann::ordered_json blocking_list(const std::vector<tune::BlockingFinding>& findings);
std::string blocking_table(const std::vector<tune::BlockingFinding>& findings);  // "" without any

// For `braid bench --list`: what the profile or BRAID_OP names for single products; prints nothing without.
void print_blockings();

}  // namespace braid::apps
