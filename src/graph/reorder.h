// Orders of nodes in which neighbours lie close in memory, so that the features of one are often cached when those of
// the other are read. The order changes no result but by rounding; features, classes and edges move together.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph_data.h"

namespace braid::graph {

// degree: highest first, so that hubs share cache lines. rcm: reverse Cuthill-McKee, breadth first from the edge of
// each component (George and Liu, 1981). labels: communities one after the other, found by label propagation (Raghavan
// et al., 2007).
enum class NodeOrder : uint8_t { degree, rcm, labels };
inline constexpr std::string_view kNodeOrders[] = {"degree", "rcm", "labels"};
std::optional<NodeOrder> node_order_of(std::string_view name);

// The nodes in their new order. Of a graph of one kind of nodes; edges count in both directions.
std::vector<int32_t> reordered(const Graph& graph, NodeOrder order);
// Renames the nodes: `nodes[i]` becomes node i. Of one graph of one kind of nodes.
void permute(GraphData& data, std::span<const int32_t> nodes);
// How far apart the ends of an edge are on average, in nodes.
double mean_span(const Csr& csr);

}  // namespace braid::graph
