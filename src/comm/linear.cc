// One rank talks to all others in turn, or all talk to all at once. One hop to everywhere: the fewest rounds where
// messages are cheap, and the reference that other algorithms are compared with.
#include "comm/phases.h"

namespace braid::comm {

void copy_to_out(Schedule& s, const Problem& p) {
  if (p.in_place) return;
  if (p.op == Op::all_gather)
    s.copy(p.blocks.range(Space::out, p.rank), {Space::in, 0, p.blocks.count(p.rank)});
  else
    s.copy({Space::out, 0, p.blocks.total()}, {Space::in, 0, p.blocks.total()});
}

void copy_to_scratch(Schedule& s, const Problem& p) {
  const int64_t total = p.blocks.total();
  s.copy({Space::scratch, s.reserve(total), total}, {Space::in, 0, total});
}

void copy_block_to_out(Schedule& s, const Problem& p) {
  s.copy({Space::out, 0, p.blocks.count(p.rank)}, p.blocks.range(Space::scratch, p.rank));
}

Schedule linear_barrier(const Problem& p) {
  Schedule s;
  for (const bool arriving : {true, false}) {
    s.once([=](Round& out) {
      for (int other = 1; other < p.size; ++other) {
        if (p.rank != 0 && p.rank != other) continue;
        const int peer = p.rank == 0 ? other : 0;
        if ((p.rank == 0) == arriving)
          out.await(peer);
        else
          out.signal(peer);
      }
    });
  }
  return s;
}

Schedule linear_broadcast(const Problem& p) {
  Schedule s;
  s.once([=](Round& out) {
    const Range all{Space::out, 0, p.blocks.total()};
    if (p.rank != p.root) return out.recv(p.root, all);
    for (int peer = 0; peer < p.size; ++peer) {
      if (peer != p.root) out.send(peer, all);
    }
  });
  return s;
}

// The root adds in the order of ranks, after its own.
Schedule linear_reduce(const Problem& p) {
  Schedule s;
  const int64_t total = p.blocks.total();
  if (p.rank != p.root) {
    s.once([=](Round& out) { out.send(p.root, Range{Space::in, 0, total}); });
    return s;
  }
  copy_to_out(s, p);
  const int64_t landing = s.reserve(p.size > 1 ? total : 0);
  s.then(p.size - 1, [=](int64_t round, Round& out) {
    const int peer = static_cast<int>(round) + (round >= p.root ? 1 : 0);
    out.recv_reduce(peer, Range{Space::out, 0, total}, landing);
  });
  return s;
}

Schedule linear_all_reduce(const Problem& p) {
  Problem first = p;
  first.root = 0;
  Schedule s = linear_reduce(first);
  for (Stage& stage : linear_broadcast(first).stages) s.stages.push_back(std::move(stage));
  return s;
}

Schedule linear_all_gather(const Problem& p) {
  Schedule s;
  copy_to_out(s, p);
  s.once([=](Round& out) {
    for (int t = 1; t < p.size; ++t) {
      const int to = p.all().wrapped(p.rank + t), from = p.all().wrapped(p.rank - t);
      out.send(to, p.blocks.range(Space::out, p.rank));
      out.recv(from, p.blocks.range(Space::out, from));
    }
  });
  return s;
}

// All contributions to this rank's block land side by side and are added in the order of their distance.
Schedule linear_reduce_scatter(const Problem& p) {
  Schedule s;
  const int64_t mine = p.blocks.count(p.rank);
  const int64_t landing = s.reserve(mine * p.size);
  s.once([=](Round& out) {
    const Range sum{Space::scratch, landing, mine};
    out.copy(sum, p.blocks.range(Space::in, p.rank));
    for (int t = 1; t < p.size; ++t) {
      const int to = p.all().wrapped(p.rank + t), from = p.all().wrapped(p.rank - t);
      out.send(to, p.blocks.range(Space::in, to));
      out.recv_reduce(from, sum, landing + t * mine);
    }
  });
  s.copy({Space::out, 0, mine}, {Space::scratch, landing, mine});
  return s;
}

}  // namespace braid::comm
