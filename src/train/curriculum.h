// Which environment and level the next problem is of: environments by their weights, levels evenly or by pass rate.
// By pass rate a level counts as much as the rewards of a group differ there, p (1 - p) for rewards of 0 and 1: levels
// that are always or never solved teach nothing, and are tried now and then in case that changes.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "data/synth/draw.h"
#include "io/json.h"

namespace braid::train {

class Curriculum {
 public:
  // `levels` of each environment; `weights` likewise, or empty: all alike.
  Curriculum(const std::vector<int64_t>& levels, std::vector<double> weights, bool by_rate);

  struct Choice {
    size_t environment = 0;
    int64_t level = 0;
  };
  Choice draw(synth::Draw& draw) const;
  // The running mean of a level begins at 1/2. A group of answers to one problem, of which `passed` (a share) were
  // right.
  void note(const Choice& choice, double passed);

  nlohmann::ordered_json state() const;
  void set(const io::Json& state);  // Error where it is of other environments

 private:
  std::vector<std::vector<double>> rates_;  // by environment and level
  std::vector<double> weights_;
  bool by_rate_;
};

}  // namespace braid::train
