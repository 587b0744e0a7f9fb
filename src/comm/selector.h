// Chooses the algorithm of a call from calls that were timed on the same machine (PCCL's adaptive dispatch,
// arXiv 2504.18658, section on algorithm selection). What counts is the regret of a choice, how much longer it takes
// than the best: a miss where two algorithms are equally fast costs nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "comm/algorithm.h"
#include "comm/learn.h"

namespace braid::comm {

struct TimedCall {
  Op op = Op::all_reduce;
  int nodes = 1, per_node = 1;
  int64_t bytes = 0;  // of the whole vector
  std::string algorithm{};
  double us = 0;
};

// A table of such calls: the header below, then a line each. Error naming the line for what is not such a call, for
// times that are not positive, for a call that is there twice, and for more than 20,000 lines.
constexpr size_t kTimesBytesMost = size_t{4} << 20;
constexpr const char* kTimesHeader = "op,nodes,per_node,bytes,algorithm,us";
std::vector<TimedCall> read_times(std::string_view where, std::string_view csv);
std::string times_csv(std::span<const TimedCall> calls);

// table: the choice by size that is built in. svm: a vote of support vector machines, one for each pair of algorithms.
// costs: the least of the times that a regression of each algorithm's log time predicts.
enum class Learner : uint8_t { table, svm, costs };
constexpr const char* kLearnerNames[] = {"table", "svm", "costs"};

class Selector {
 public:
  // Of an operation those algorithms take part that were timed at every point (nodes, per_node, bytes) of it.
  // Error for an operation with more than 512 points.
  Selector(std::span<const TimedCall> calls, Learner learner);
  ~Selector();

  // The best algorithm that does the problem. Where nothing can be said (the operation was not timed, or ranks lie
  // unevenly on nodes, or send uneven counts) the choice by size. The same on all ranks.
  const Algorithm& choose(const Problem& problem) const;

 private:
  class OfOp;
  std::vector<std::unique_ptr<OfOp>> ops_;
  // Of calls before, by operation, ranks and bytes. A rank has a selector of its own, and one thread that makes calls.
  mutable std::map<std::tuple<Op, int, int, int64_t>, const Algorithm*> known_;
};

struct Regret {
  double mean = 0, worst = 0, right = 0;  // right: the share of points with no more than 0.1%
  int points = 0;
};
// Of one operation's calls: half of the grid of nodes and sizes is held out, every other point like a chessboard.
Regret regret_on_held_out(std::span<const TimedCall> calls, Learner learner);
// Each number of nodes is held out in turn.
Regret regret_on_new_nodes(std::span<const TimedCall> calls, Learner learner);

}  // namespace braid::comm
