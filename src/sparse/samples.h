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

// Communities of 64 nodes, whose numbers are mixed; put in order by label propagation where `ordered`.
graph::Csr communities(int64_t nodes, bool ordered);

// A sample for every width: the least times of the rounds, since what delays a run is not the way's.
void measure(const std::string& name, const graph::Csr& csr, const std::vector<int64_t>& widths, int rounds,
             std::vector<Sample>& samples);

std::string csv_of(std::span<const Sample> samples);

}  // namespace braid::sparse
