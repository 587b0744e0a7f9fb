#include "comm/timing.h"

#include <algorithm>
#include <limits>

namespace braid::comm {
namespace {

struct Vectors {
  std::vector<std::byte> in{}, out{};
};

Handle start(Group& g, const Request& r, Vectors& v) {
  const Problem p = problem_of(r, g.rank(), g.size(), g.per_node());
  const int64_t own = r.op == Op::all_gather || r.op == Op::reduce_scatter ? p.blocks.count(g.rank()) : 0;
  const View in(v.in.data(), r.type, {r.op == Op::all_gather ? own : p.blocks.total()});
  const MutView out(v.out.data(), r.type, {r.op == Op::reduce_scatter ? own : p.blocks.total()});
  std::vector<int64_t> counts;
  if (own > 0 || r.op == Op::all_gather || r.op == Op::reduce_scatter) {
    for (int b = 0; b < g.size(); ++b) counts.push_back(p.blocks.count(b));
  }
  switch (r.op) {
    case Op::barrier:
      return g.barrier(r.algorithm);
    case Op::broadcast:
      return g.broadcast(out, r.root, r.algorithm);
    case Op::reduce:
      return g.reduce(in, out, r.reduction, r.root, r.algorithm);
    case Op::all_reduce:
      return g.all_reduce(in, out, r.reduction, r.algorithm);
    case Op::all_gather:
      return g.all_gather(in, out, counts, r.algorithm);
    case Op::reduce_scatter:
      return g.reduce_scatter(in, out, r.reduction, counts, r.algorithm);
    case Op::all_to_all:
      return g.all_to_all(in, out, {}, {}, r.algorithm);
  }
  return g.barrier();
}

}  // namespace

Measured measure(Group& group, const Request& request, int repeats) {
  const auto bytes = static_cast<size_t>(request.count * size_of(request.type));
  Vectors v{std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  const Traffic before = group.traffic();
  start(group, request, v).wait();
  const Traffic& after = group.traffic();
  int64_t sums[4];
  for (size_t level = 0; level < 2; ++level) {
    sums[level] = after.bytes[level] - before.bytes[level];
    sums[2 + level] = after.messages[level] - before.messages[level];
  }
  const MutView all = mut_view_of(sums, {4});
  group.all_reduce(all, all).wait();
  Measured m{.us = std::numeric_limits<double>::infinity(), .traffic = {{sums[0], sums[1]}, {sums[2], sums[3]}}};
  for (int repeat = 0; repeat < repeats; ++repeat) {
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    start(group, request, v).wait();
    auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
    int64_t longest = ns;
    group.all_reduce(mut_view_of(&longest, {1}), mut_view_of(&longest, {1}), Reduction::max).wait();
    m.us = std::min(m.us, static_cast<double>(longest) / 1e3);
  }
  return m;
}

}  // namespace braid::comm
