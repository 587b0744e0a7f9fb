// The numbers of a graph that is only planned, of a file that graph_data.h describes: rowptr and col must be there, x
// and y need not. Error for what no grid of ranks trains on: two types of nodes, classes of whole graphs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace braid::graph {

struct GraphNumbers {
  int64_t nodes = 0, edges = 0;       // without self-loops
  int64_t features = 0, classes = 0;  // 0: the file does not say
};

GraphNumbers read_numbers(const std::filesystem::path& path);
// The same from the tensors of a file; `where` names it.
GraphNumbers numbers_of(const std::vector<io::StoredTensor>& tensors, const std::string& where);

}  // namespace braid::graph
