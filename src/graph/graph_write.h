// Writes graphs in the layout that graph_data.h reads.
#pragma once
#include <filesystem>

#include "graph/graph_data.h"

namespace braid::graph {

// What the graph does not have is left out. `path` ends in .safetensors; the file appears whole or not
// at all.
void write_graph(const std::filesystem::path& path, const GraphData& data);

}  // namespace braid::graph
