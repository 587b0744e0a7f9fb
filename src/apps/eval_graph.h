// braid eval of a graph network: losses and predictions of nodes, pairs of nodes or graphs. And what braid info says of
// such a network and of a file with a graph.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/cli.h"

namespace braid::apps {

// Whether a folder holds a graph network, as objective = "graph" writes one.
bool holds_graph_network(const std::filesystem::path& folder);

// Whether braid eval was given one. Of options only its own go with it, and with nothing else.
bool evals_graph(const std::string& model, const Cli& cli);

struct EvalGraphArgs {
  std::string folder, graph, predictions;  // graph: another file than the run's; predictions: a .csv to write
  int64_t threads = 0;
  bool json = false;
};
int eval_graph(const EvalGraphArgs& args);

// Of a folder with a graph network, or of a .safetensors file with a graph; null: it is neither.
std::optional<nlohmann::ordered_json> describe_graph(const std::filesystem::path& path);
std::string text_of_graph(const nlohmann::ordered_json& description);

}  // namespace braid::apps
