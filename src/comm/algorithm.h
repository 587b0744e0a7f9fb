// The algorithms of collective operations: rows of a table, each a function from a problem, seen by one rank, to that
// rank's schedule (steps.h). Counts are in elements, so a schedule is the same for every type of one size.
//   linear          one rank talks to all, or all to all at once
//   binomial        a tree
//   ring            neighbours only, P - 1 rounds, the least bytes
//   bruck           log2 P rounds for any P (Bruck et al. 1997)
//   recursive       doubling and halving over 2^k ranks; the others fold in
//   rabenseifner    halving, then doubling (Thakur, Rabenseifner and Gropp 2005). As in the recursive all-reduce every
//                   element is summed in the same order, which depends on P alone: both have the same bits
//   double_tree     two trees, inner ranks of one are leaves of the other, in segments (Sanders et al. 2009)
//   pairwise        P - 1 rounds, one partner in each
//   two_level       within nodes, then between the ranks of the same place
//   pccl_ring, pccl_recursive
//                   two levels, ring or recursive between nodes (arXiv 2504.18658), without its transposition
//   nvrar           two levels; between nodes recursive doubling in LL8 cells, without a barrier (arXiv 2511.09557)
//   native          no schedule: the transport's library does it (native.h), whatever its order of additions
//   native_blocking the same by the calls that return when they are over, for whose sake a library is often tuned
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/blocks.h"
#include "comm/steps.h"

namespace braid::comm {

enum class Op : uint8_t { barrier, broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all };
const char* name_of(Op op);  // "all_reduce"

struct Problem {
  Op op = Op::barrier;
  int rank = 0, size = 1;
  int per_node = 1;  // ranks of a node; nodes are consecutive ranks. 0: nodes are uneven or not consecutive
  int root = 0;      // of broadcast and reduce
  // broadcast, reduce, all-reduce: the whole vector. all-gather: block b is what rank b contributes. reduce-scatter:
  // block b is what rank b gets. all-to-all: block b is what this rank sends to rank b.
  Blocks blocks{};
  Blocks received{};    // all-to-all: block b is what this rank gets from rank b
  bool uniform = true;  // all-to-all: every rank sends as many to every rank
  bool in_place = false;
  int64_t element = 4;  // bytes
  bool native = false;  // the transport's library has collectives of its own
  bool alone = false;   // no two calls are in flight at once, so that one may block

  Team all() const { return {.me = rank, .size = size}; }
  int nodes() const { return size / per_node; }
  Team node() const { return {.me = rank % per_node, .size = per_node, .first = rank / per_node * per_node}; }
  // The ranks with this one's place in every node.
  Team aligned() const {
    return {.me = rank / per_node, .size = nodes(), .first = rank % per_node, .stride = per_node};
  }
};

struct Algorithm {
  Op op;
  const char* name;
  const char* (*refuses)(const Problem&);  // why it cannot do this problem; null: it can
  Schedule (*make)(const Problem&);        // null: native
};
std::span<const Algorithm> algorithms();       // that have a schedule
std::span<const Algorithm> every_algorithm();  // and then the native ones

// The row of that name; of an empty one the row that is chosen by the problem's size. Error for a name that the
// operation does not have, and for one that refuses this problem; it begins with `where`, such as an option.
const Algorithm& algorithm_for(const Problem& problem, std::string_view name, std::string_view where = {});
std::vector<std::string> algorithm_names(Op op);

// The schedules, in linear.cc, tree.cc, ring.cc, recursive.cc, double_tree.cc, exchange.cc, hierarchy.cc, nvrar.cc.
Schedule linear_barrier(const Problem&), linear_broadcast(const Problem&), linear_reduce(const Problem&);
Schedule linear_all_reduce(const Problem&), linear_all_gather(const Problem&), linear_reduce_scatter(const Problem&);
Schedule binomial_barrier(const Problem&), binomial_broadcast(const Problem&), binomial_reduce(const Problem&);
Schedule binomial_all_reduce(const Problem&), double_tree_all_reduce(const Problem&);
Schedule ring_all_reduce(const Problem&), ring_all_gather(const Problem&), ring_reduce_scatter(const Problem&);
Schedule recursive_barrier(const Problem&), recursive_all_reduce(const Problem&), recursive_all_gather(const Problem&);
Schedule recursive_reduce_scatter(const Problem&), rabenseifner_all_reduce(const Problem&);
Schedule bruck_all_gather(const Problem&), bruck_all_to_all(const Problem&);
Schedule linear_all_to_all(const Problem&), pairwise_all_to_all(const Problem&),
    pairwise_reduce_scatter(const Problem&);
Schedule two_level_all_reduce(const Problem&), two_level_all_to_all(const Problem&), nvrar_all_reduce(const Problem&);
Schedule pccl_ring_all_reduce(const Problem&), pccl_ring_all_gather(const Problem&);
Schedule pccl_ring_reduce_scatter(const Problem&), pccl_recursive_all_reduce(const Problem&);
Schedule pccl_recursive_all_gather(const Problem&), pccl_recursive_reduce_scatter(const Problem&);

}  // namespace braid::comm
