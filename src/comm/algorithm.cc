#include "comm/algorithm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "sys/error.h"
#include "sys/nearest.h"

namespace braid::comm {
namespace {

constexpr std::array<const char*, 7> kOpNames = {"barrier",    "broadcast",      "reduce",    "all_reduce",
                                                 "all_gather", "reduce_scatter", "all_to_all"};

const char* any(const Problem&) { return nullptr; }
const char* uniform(const Problem& p) { return p.uniform ? nullptr : "ranks send different counts"; }
const char* nodes(const Problem& p) {
  return p.per_node > 0 ? nullptr : "nodes do not hold equally many consecutive ranks";
}
const char* uniform_nodes(const Problem& p) { return nodes(p) ? nodes(p) : uniform(p); }

constexpr Algorithm kAlgorithms[] = {
    {Op::barrier, "linear", any, linear_barrier},
    {Op::barrier, "binomial", any, binomial_barrier},
    {Op::barrier, "recursive", any, recursive_barrier},
    {Op::broadcast, "linear", any, linear_broadcast},
    {Op::broadcast, "binomial", any, binomial_broadcast},
    {Op::reduce, "linear", any, linear_reduce},
    {Op::reduce, "binomial", any, binomial_reduce},
    {Op::all_reduce, "linear", any, linear_all_reduce},
    {Op::all_reduce, "binomial", any, binomial_all_reduce},
    {Op::all_reduce, "ring", any, ring_all_reduce},
    {Op::all_reduce, "recursive", any, recursive_all_reduce},
    {Op::all_reduce, "rabenseifner", any, rabenseifner_all_reduce},
    {Op::all_reduce, "double_tree", any, double_tree_all_reduce},
    {Op::all_reduce, "two_level", nodes, two_level_all_reduce},
    {Op::all_reduce, "nvrar", nodes, nvrar_all_reduce},
    {Op::all_reduce, "pccl_ring", nodes, pccl_ring_all_reduce},
    {Op::all_reduce, "pccl_recursive", nodes, pccl_recursive_all_reduce},
    {Op::all_gather, "linear", any, linear_all_gather},
    {Op::all_gather, "ring", any, ring_all_gather},
    {Op::all_gather, "bruck", any, bruck_all_gather},
    {Op::all_gather, "recursive", any, recursive_all_gather},
    {Op::all_gather, "pccl_ring", nodes, pccl_ring_all_gather},
    {Op::all_gather, "pccl_recursive", nodes, pccl_recursive_all_gather},
    {Op::reduce_scatter, "linear", any, linear_reduce_scatter},
    {Op::reduce_scatter, "ring", any, ring_reduce_scatter},
    {Op::reduce_scatter, "pairwise", any, pairwise_reduce_scatter},
    {Op::reduce_scatter, "recursive", any, recursive_reduce_scatter},
    {Op::reduce_scatter, "pccl_ring", nodes, pccl_ring_reduce_scatter},
    {Op::reduce_scatter, "pccl_recursive", nodes, pccl_recursive_reduce_scatter},
    {Op::all_to_all, "linear", any, linear_all_to_all},
    {Op::all_to_all, "pairwise", any, pairwise_all_to_all},
    {Op::all_to_all, "bruck", uniform, bruck_all_to_all},
    {Op::all_to_all, "two_level", uniform_nodes, two_level_all_to_all},
};

// Where MPICH 4.0 changes over: short vectors take few rounds, long ones move few bytes. All ranks have to choose
// alike, so a choice depends on what they all know.
const char* chosen(const Problem& p) {
  const int64_t bytes = p.blocks.total() * p.element;
  switch (p.op) {
    case Op::barrier:
      return "recursive";
    case Op::broadcast:
      return "binomial";
    case Op::reduce:
      return "binomial";
    case Op::all_reduce:
      return bytes <= 2048 ? "recursive" : "rabenseifner";
    case Op::all_gather:
      return bytes < 81920 ? "bruck" : "ring";
    case Op::reduce_scatter:
      return bytes < 524288 ? "recursive" : "ring";
    case Op::all_to_all:
      return p.uniform && bytes <= 256 * p.size ? "bruck" : "pairwise";
  }
  return "";
}

}  // namespace

const char* name_of(Op op) { return kOpNames[static_cast<size_t>(op)]; }
std::span<const Algorithm> algorithms() { return kAlgorithms; }

std::vector<std::string> algorithm_names(Op op) {
  std::vector<std::string> names;
  for (const Algorithm& a : kAlgorithms) {
    if (a.op == op) names.emplace_back(a.name);
  }
  return names;
}

const Algorithm& algorithm_for(const Problem& problem, std::string_view name) {
  if (name.empty()) name = chosen(problem);
  for (const Algorithm& a : kAlgorithms) {
    if (a.op != problem.op || a.name != name) continue;
    const char* reason = a.refuses(problem);
    if (reason == nullptr) return a;
    fail(fmt::format("{} of {}", a.name, name_of(problem.op)),
         {.what = "cannot do this call", .got = reason, .hint = "another algorithm"});
  }
  const std::vector<std::string> names = algorithm_names(problem.op);
  fail(name_of(problem.op), {.what = "has no such algorithm",
                             .got = printable(name),
                             .expected = fmt::format("{}", fmt::join(names, ", ")),
                             .hint = sys::nearest(name, names)});
}

}  // namespace braid::comm
