// Small circuits and labels for tests.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/philox.h"
#include "eda/labels.h"

namespace braid::eda {

// Gates in a chain, or, `wide`, pairs of inputs joined as a tournament; every third wire is inverted.
inline graph::Aig small_circuit(int64_t gates, bool wide) {
  graph::Aig aig{.inputs = gates + 1};
  for (int64_t i = 0; i < gates; ++i) {
    const int64_t own = 1 + aig.inputs + i, chained = i == 0 ? 1 : own - 1, left = wide ? 2 * i + 1 : chained,
                  right = wide ? 2 * i + 2 : i + 2;
    aig.gates.push_back({static_cast<int32_t>(2 * left + (i % 3 == 0)), static_cast<int32_t>(2 * right)});
  }
  aig.outputs.push_back(static_cast<int32_t>(2 * (aig.inputs + gates) + 1));
  return aig;
}

// Random recipes, and what `value(design, recipe, target)` says of them, every result a netlist of its own.
inline Labels small_labels(int64_t recipes, int64_t steps,
                           const std::vector<std::pair<std::string, graph::Aig>>& designs,
                           const std::function<double(size_t, const Recipe&, size_t)>& value) {
  Labels labels;
  for (int64_t r = 0; r < recipes; ++r) {
    Recipe& recipe = labels.recipes.emplace_back();
    for (int64_t t = 0; t < steps; ++t)
      recipe.push_back(
          static_cast<uint8_t>(philox({.seed = 7}, static_cast<uint64_t>(r * steps + t))[0] % kSteps.size()));
  }
  for (size_t d = 0; d < designs.size(); ++d) {
    Design& design =
        labels.designs.emplace_back(Design{.name = designs[d].first, .nodes = graph::nodes_of(designs[d].second)});
    for (size_t r = 0; r < labels.recipes.size(); ++r) {
      Outcome& outcome = design.outcomes.emplace_back(Outcome{.same = static_cast<int32_t>(r), .seconds = 0.1});
      for (size_t t = 0; t < kTargetCount; ++t) outcome.values[t] = value(d, labels.recipes[r], t);
    }
  }
  return labels;
}

}  // namespace braid::eda
