// A decision tree that names the fastest way to run spmm before anything of the graph was timed, for graphs that are
// used once: sampled neighbours, the first products of a run. It is grown to least regret, not to most hits, since two
// ways that differ by a percent are both right. (Dai et al., DA-SpMM, arXiv 2202.08556, learn the choice among GPU
// kernels.)
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sparse/ways.h"

namespace braid::sparse {

struct Node {
  int feature = -1;  // which of kFeatures is compared; -1: a leaf
  double limit = 0;  // at most this: `below`
  int below = 0, above = 0;
  int way = 0;  // of a leaf
};

struct NamedFeature {
  const char* name;
  double Features::*value;
};
inline constexpr NamedFeature kFeatures[] = {{"mean", &Features::mean},
                                             {"spread", &Features::spread},
                                             {"width", &Features::width},
                                             {"x_mib", &Features::x_mib},
                                             {"y_mib", &Features::y_mib}};

// Times of every way on one graph with one width; infinite: not among the choices.
struct Sample {
  std::string graph{};
  Features features{};
  std::array<double, kWays> seconds{};

  int best() const;
  double regret(int way) const { return seconds[static_cast<size_t>(way)] / seconds[static_cast<size_t>(best())] - 1; }
};

// By what splits are judged. `costs`, of times: how much slower than the best the cheapest way of each side is.
// `votes`, where only the fastest way is known: how mixed the fastest ways of each side are. Costs alone stop where two
// conditions gain only together (on labels of DA-SpMM 0.84 against 0.98 of the best), votes take ways that are seldom
// far better (on our own times the worst choice of a graph left out was up to twice as bad).
enum class Splits : uint8_t { costs, votes };
std::vector<Node> grow(std::span<const Sample> samples, Splits by = Splits::costs);
int decide(std::span<const Node> tree, const Features& features);
std::span<const Node> built_in_tree();            // tree_table.cc
std::string text_of(std::span<const Node> tree);  // as rows of tree_table.cc

// How far choices are from the best way of each sample.
struct Regret {
  double mean = 0, worst = 0;  // of the time over the least, minus one
  double of_best = 0;          // geometric mean of the least time over that of the choice
};
Regret regret_of(std::span<const Sample> samples, const std::vector<int>& choices);
// Every graph's samples decided by a tree that was grown without them.
std::vector<int> leave_one_graph_out(std::span<const Sample> samples);

}  // namespace braid::sparse
