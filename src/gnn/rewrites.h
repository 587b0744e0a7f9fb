// Rewrites of the computation of layers (Zhang et al., arXiv 2110.09524), which change what a step costs but no result
// beyond rounding. Each can be switched off, to see what it saves (count_step, braid repro gnn-fusion).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numerics.h"
#include "core/param.h"
#include "graph/graph.h"

namespace braid::gnn {

struct Rewrites {
  // Products and scores of edges are those of their nodes, since they are linear: gat, edgeconv (section 4 there).
  bool postpone = true;
  // The product before or after the aggregation, whichever costs less: gcn, sage, gin. Else as the formula has it:
  // gcn's before, those of sage and gin after.
  bool order = true;
  // Messages stay in registers (section 5). Else each edge has its message in memory, gat also its score and weight.
  bool fuse = true;
  // Values of edges that the backward pass reads are computed again for it (section 6): those that fuse leaves, which
  // are monet's weights, and all of those without it. Else they are kept.
  bool recompute = true;
  // No gradient of the features, which are not trained.
  bool first = true;
};

struct RewriteName {
  const char* name;
  bool Rewrites::*on;
  const char* what;  // it does
};
std::span<const RewriteName> rewrite_names();
// All but those of a list. Error at `where` for an unknown name.
Rewrites rewrites_without(std::span<const std::string> names, std::string_view where);

// What the ops of a training step without its loss name: operations, bytes of their operands, each once, and the most
// memory that activations and gradients take.
struct StepCount {
  double flops = 0;
  int64_t bytes = 0, memory = 0;
};

}  // namespace braid::gnn
