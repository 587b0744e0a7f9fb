// And-inverter graphs: circuits of two-input AND gates whose wires may be inverted, which logic synthesis rewrites.
// Read from AIGER, ASCII ("aag") or binary ("aig"):
//   M I L O A                        largest variable, inputs, latches, outputs, gates
//   a literal is 2 variable, + 1 where it is inverted; variable 0 is the constant false
//   ascii    lines: inputs; latches "literal next [reset]"; outputs; gates "literal left right", in any order
//   binary   inputs, latches and gates are numbered in this order; a gate is literal - left and left - right, 7 bits a
//            byte
// Symbols and comments after that are ignored. (Biere, "The AIGER And-Inverter Graph (AIG) Format", 2007; a latch's
// reset is of version 1.9.) The file is untrusted: what is allocated is limited by its length.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "graph/csr.h"

namespace braid::graph {

// Variables: 0, then inputs, then gates, each after those that it reads. Of a circuit with latches the logic between
// them: what they hold is an input, and what they will hold an output.
struct Aig {
  int64_t inputs = 0;
  std::vector<std::array<int32_t, 2>> gates{};  // literals
  std::vector<int32_t> outputs{};               // literals
};

Aig parse_aiger(std::string_view bytes, const std::string& where);
Aig read_aiger(const std::filesystem::path& path);

// The nodes of a circuit: the constant, inputs, gates, then outputs, which are nodes of their own.
enum class AigKind : uint8_t { constant, input, gate, output };
struct AigNodes {
  Csr in{};                         // row i: what node i reads; a gate that reads a node twice has parallel edges
  std::vector<AigKind> kind{};      // of nodes
  std::vector<uint8_t> inverted{};  // of nodes: how many of what they read is inverted, 0 to 2
  std::vector<int32_t> level{};     // of nodes: gates on the longest path to it, itself counted
  int32_t depth = 0;                // the highest level
};
AigNodes nodes_of(const Aig& aig);

}  // namespace braid::graph
