#include "comm/algorithm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

#include "sys/check.h"
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

const char* native(const Problem& p) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();  // MPI counts in int
  if (!p.native) return "the transport has no collectives of its own; those over mpi and nccl do";
  return p.blocks.total() <= kMost && p.received.total() <= kMost ? nullptr : "more than 2^31 - 1 elements";
}
const char* native_alone(const Problem& p) {
  return native(p) || p.alone ? native(p) : "other calls may be in flight; it blocks";
}

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
    {Op::broadcast, "native", native, nullptr},
    {Op::broadcast, "native_blocking", native_alone, nullptr},
    {Op::reduce, "native", native, nullptr},
    {Op::reduce, "native_blocking", native_alone, nullptr},
    {Op::all_reduce, "native", native, nullptr},
    {Op::all_reduce, "native_blocking", native_alone, nullptr},
    {Op::all_gather, "native", native, nullptr},
    {Op::all_gather, "native_blocking", native_alone, nullptr},
    {Op::reduce_scatter, "native", native, nullptr},
    {Op::reduce_scatter, "native_blocking", native_alone, nullptr},
    {Op::all_to_all, "native", native, nullptr},
    {Op::all_to_all, "native_blocking", native_alone, nullptr},
};

// Which algorithm when none is named: the first row of the operation that allows the problem. Short vectors take few
// rounds, long ones move few bytes over the slowest level. All ranks have to choose alike, so that a row reads only
// what they all know. sim_test bounds what the choice loses to the best on every preset; MPICH changes over at similar
// sizes.
struct Choice {
  Op op;
  bool levels;         // of problems with several nodes of several ranks
  int64_t bytes_most;  // of the whole vector; all-to-all: of a pair of ranks
  const char* name;
};
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
constexpr Choice kChoices[] = {
    {Op::barrier, false, kAny, "recursive"},
    {Op::broadcast, false, kAny, "binomial"},
    {Op::reduce, false, kAny, "binomial"},
    {Op::all_reduce, true, 128 << 10, "recursive"},
    {Op::all_reduce, true, 512 << 10, "nvrar"},
    {Op::all_reduce, true, kAny, "two_level"},
    {Op::all_reduce, false, 32 << 10, "recursive"},
    {Op::all_reduce, false, kAny, "rabenseifner"},
    {Op::all_gather, true, 512 << 10, "recursive"},
    {Op::all_gather, true, kAny, "pccl_recursive"},
    {Op::all_gather, false, 80 << 10, "bruck"},
    {Op::all_gather, false, kAny, "ring"},
    {Op::reduce_scatter, true, 512 << 10, "recursive"},
    {Op::reduce_scatter, true, kAny, "pccl_recursive"},
    {Op::reduce_scatter, false, 512 << 10, "recursive"},
    {Op::reduce_scatter, false, kAny, "ring"},
    {Op::all_to_all, false, 4 << 10, "bruck"},
    {Op::all_to_all, true, 16 << 10, "two_level"},
    {Op::all_to_all, false, 1 << 20, "linear"},
    {Op::all_to_all, true, kAny, "two_level"},
    {Op::all_to_all, false, kAny, "pairwise"},
};

const Algorithm* row_of(Op op, std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.op == op && a.name == name) return &a;
  }
  return nullptr;
}

const Algorithm& chosen(const Problem& p) {
  // What ranks of an uneven all-to-all send differs, so that its size chooses nothing. In sim pairwise rounds are never
  // faster than all messages at once.
  if (!p.uniform) return *row_of(p.op, "linear");
  const bool levels = p.per_node > 1 && p.per_node < p.size;
  const int64_t bytes = p.blocks.total() * p.element / (p.op == Op::all_to_all ? p.size : 1);
  for (const Choice& choice : kChoices) {
    if (choice.op != p.op || (choice.levels && !levels) || bytes > choice.bytes_most) continue;
    const Algorithm* a = row_of(p.op, choice.name);
    if (a->refuses(p) == nullptr) return *a;
  }
  CHECK(false, "no algorithm for {}", name_of(p.op));
  return kAlgorithms[0];
}

}  // namespace

const char* name_of(Op op) { return kOpNames[static_cast<size_t>(op)]; }
std::span<const Algorithm> every_algorithm() { return kAlgorithms; }
std::span<const Algorithm> algorithms() {
  const auto end =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [](const Algorithm& a) { return !a.make; });
  return {std::begin(kAlgorithms), end};
}

std::vector<std::string> algorithm_names(Op op) {
  std::vector<std::string> names;
  for (const Algorithm& a : kAlgorithms) {
    if (a.op == op) names.emplace_back(a.name);
  }
  return names;
}

const Algorithm& algorithm_for(const Problem& problem, std::string_view name, std::string_view where) {
  if (name.empty()) return chosen(problem);
  const Algorithm* named = row_of(problem.op, name);
  const char* reason = named ? named->refuses(problem) : nullptr;
  if (named && reason == nullptr) return *named;
  std::vector<std::string> names;  // that can do this call: others are no help
  for (const Algorithm& a : kAlgorithms) {
    if (a.op == problem.op && a.refuses(problem) == nullptr) names.emplace_back(a.name);
  }
  const std::string expected = fmt::format("{}", fmt::join(names, ", "));
  if (named)
    fail(where.empty() ? fmt::format("{} of {}", name, name_of(problem.op)) : std::string(where),
         {.what = fmt::format("{} cannot do this call", name), .got = reason, .expected = expected});
  fail(where.empty() ? name_of(problem.op) : where,
       {.what = fmt::format("{} has no such algorithm", name_of(problem.op)),
        .got = printable(name),
        .expected = expected,
        .hint = sys::nearest(name, names)});
}

}  // namespace braid::comm
