// Graphs as text. Untrusted: the size of everything that is allocated is limited by the length of the text.
//   Matrix Market   "%%MatrixMarket matrix coordinate FIELD SYMMETRY" in any case, comments, "rows cols entries", then
//                   "row column [value]" from 1; FIELD: pattern, or real and integer, whose values are weights; row i,
//                   column j is an edge from j to i; SYMMETRY: general, or symmetric and skew-symmetric files have one
//                   of both directions, and the latter the other with its sign changed
//                   (https://math.nist.gov/MatrixMarket/formats.html)
//   edge list       "source target [weight [more]]" per line, numbers from 0, between spaces, tabs or a comma, all
//   lines
//                   with a weight or none; lines that start with # or % are comments (SNAP's files)
// Self-loops and repeated edges are left out, and counted as the text has them: one direction of an edge does not
// repeat the other. Weights of repeated edges are added up; two directions of one edge with other weights are an Error.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/csr.h"

namespace braid::graph {

struct TextGraph {
  Csr csr;
  int64_t removed = 0;  // self-loops and repetitions
};

enum class Weights : uint8_t { read, ignored };

bool is_matrix_market(std::string_view text);
// Error, naming the line, for anything but a square matrix of coordinates.
TextGraph parse_matrix_market(std::string_view text, const std::string& where, Weights weights = Weights::read);
// `both_ways`: each line is an edge in both directions. At least `nodes` nodes: the last ones may have no edge.
TextGraph parse_edge_list(std::string_view text, const std::string& where, bool both_ways, int64_t nodes = 0,
                          Weights weights = Weights::read);

}  // namespace braid::graph
