// Measurements to choose from: generated graphs that differ in size, mean degree and spread of degrees.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "graph/csr.h"
#include "sparse/tree.h"

namespace braid::sparse {

struct NamedGraph {
  std::string name;
  std::function<graph::Csr()> make;
};
std::vector<NamedGraph> sample_graphs(bool quick);

// For every width two samples: of a graph that is used once, where making a pack counts, and of one used kOften times.
inline constexpr double kOften = 1000;
void measure(const std::string& name, const graph::Csr& csr, const std::vector<int64_t>& widths, int rounds,
             std::vector<Sample>& samples);

std::string csv_of(std::span<const Sample> samples);

}  // namespace braid::sparse
