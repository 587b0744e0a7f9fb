// Times of collectives in closed form, each by the algorithm that comm chooses for it.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "layout/cost.h"
#include "sys/check.h"

namespace braid::layout {
namespace {

using comm::Op;

// A level of links as one rank of a group sees it.
struct Hop {
  double alpha = 0, per_byte = 0;
  double overhead = 0;  // of alpha, what the sender computes, and the receiver as well

  double message(double bytes) const { return alpha + bytes * per_byte; }
};

struct Levels {
  double members = 1, nodes = 1;  // of a group on a node; nodes of a group
  Hop inner{}, outer{};
  double copy = 0, reduce = 0;  // seconds per byte, of local steps
  double launch = 0;

  double ranks() const { return members * nodes; }
  bool two() const { return members > 1 && nodes > 1; }
  const Hop& only() const { return nodes > 1 ? outer : inner; }
};

Hop hop_of(const comm::Link& link, double sharing) {
  return {(link.latency_us + 2 * link.overhead_us) * 1e-6, sharing / (link.gb_per_s * 1e9), link.overhead_us * 1e-6};
}

Levels levels_of(const comm::Groups& group, const comm::Cluster& cluster) {
  const double size = group.size, within = std::max(1.0, std::min(size, double(cluster.gpus) / group.stride));
  const double sharing = std::max(1.0, double(cluster.gpus) / cluster.nics);
  Levels levels{.members = within,
                .nodes = size / within,
                .inner = hop_of(cluster.node, 1),
                .outer = hop_of(cluster.network, sharing),
                .copy = 1 / (cluster.copy_gb_per_s * 1e9),
                .reduce = 1 / (cluster.reduce_gb_per_s * 1e9),
                .launch = cluster.launch_us * 1e-6};
  if (cluster.rack_nodes > 0 && cluster.nodes > cluster.rack_nodes) {
    levels.outer.alpha += cluster.rack_latency_us * 1e-6;
    levels.outer.per_byte *= std::max(1.0, cluster.taper);
  }
  return levels;
}

double log2_up(double n) { return std::ceil(std::log2(n) - 1e-9); }

// Each rank ends with, or begins with, all bytes; sums take `reduce` more.
double ring(double ranks, const Hop& hop, double bytes, double reduce) {
  return (ranks - 1) * (hop.alpha + bytes / ranks * (hop.per_byte + reduce));
}
double recursive(double ranks, const Hop& hop, double bytes, double reduce) {
  return log2_up(ranks) * hop.alpha + (ranks - 1) / ranks * bytes * (hop.per_byte + reduce);
}

// An all-gather, or a reduce-scatter, which is its mirror.
double gather(const Levels& l, std::string_view algorithm, double bytes, double reduce) {
  const double p = l.ranks();
  if (algorithm == "ring") return ring(p, l.only(), bytes, reduce);
  if (algorithm == "bruck" || (algorithm == "recursive" && !l.two())) return recursive(p, l.only(), bytes, reduce);
  if (algorithm == "recursive") {
    const double near = (l.members - 1) / p * bytes, far = (p - l.members) / p * bytes;
    return log2_up(l.members) * l.inner.alpha + near * (l.inner.per_byte + reduce) + log2_up(l.nodes) * l.outer.alpha +
           far * (l.outer.per_byte + reduce);
  }
  CHECK(algorithm == "pccl_recursive", "no time of {}", algorithm);
  return recursive(l.nodes, l.outer, bytes / l.members, reduce) + ring(l.members, l.inner, bytes, reduce);
}

double all_reduce(const Levels& l, std::string_view algorithm, double bytes) {
  const double p = l.ranks();
  const auto doubling = [&](double ranks, const Hop& hop, double n) {
    return log2_up(ranks) * (hop.alpha + n * (hop.per_byte + l.reduce));
  };
  if (algorithm == "rabenseifner") return recursive(p, l.only(), bytes, l.reduce) + recursive(p, l.only(), bytes, 0);
  if (algorithm == "recursive") return doubling(l.members, l.inner, bytes) + doubling(l.nodes, l.outer, bytes);
  const double near = ring(l.members, l.inner, bytes, l.reduce) + ring(l.members, l.inner, bytes, 0),
               slice = bytes / l.members;
  if (algorithm == "nvrar") {
    Hop cells = l.outer;  // twice the bytes (comm/cells.h)
    cells.per_byte *= 2;
    return near + doubling(l.nodes, cells, slice);
  }
  CHECK(algorithm == "two_level", "no time of {}", algorithm);
  return near + recursive(l.nodes, l.outer, slice, l.reduce) + recursive(l.nodes, l.outer, slice, 0);
}

double all_to_all(const Levels& l, std::string_view algorithm, double bytes) {
  CHECK(algorithm == "linear", "no time of {}", algorithm);
  // All ranks of a node send to the first of the next node at once, then to its second, whom the messages reach that
  // much later: the last one waits as if all messages crossed the network.
  const double p = l.ranks(), overheads = 2 * ((l.members - 1) * l.inner.overhead + (p - l.members) * l.outer.overhead);
  return std::max(overheads, l.only().message((p - 1) / p * bytes));
}

}  // namespace

comm::Request request_of(Op op, double bytes, int ranks) {
  comm::Request request{.op = op, .count = static_cast<int64_t>(bytes / 4), .uniform = op != Op::all_to_all};
  if (op == Op::all_to_all) request.count -= request.count % ranks;
  return request;
}

double seconds_of(const Call& call, const comm::Groups& group, const comm::Cluster& cluster) {
  if (group.size == 1) return 0;
  const Levels l = levels_of(group, cluster);
  const comm::Request request = request_of(call.op, call.bytes, group.size);
  const int per_node = comm::members_per_node(cluster, group);
  const std::string_view name = comm::algorithm_for(comm::problem_of(request, 0, group.size, per_node), {}).name;
  switch (call.op) {
    case Op::all_gather:
      return l.launch + gather(l, name, call.bytes, 0) + call.bytes / l.ranks() * l.copy;
    case Op::reduce_scatter:
      return l.launch + gather(l, name, call.bytes, l.reduce) + call.bytes / (l.two() ? 1 : l.ranks()) * l.copy;
    case Op::all_to_all:
      return l.launch + all_to_all(l, name, call.bytes) + call.bytes / l.ranks() * l.copy;
    default:
      return l.launch + all_reduce(l, name, call.bytes) + call.bytes * l.copy;
  }
}

double shift_seconds(double bytes, int distance, const comm::Cluster& cluster) {
  const Levels l = levels_of({.size = 2, .stride = distance}, cluster);
  return l.launch + l.only().message(bytes);
}

}  // namespace braid::layout
