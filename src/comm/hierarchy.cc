// Two levels: within a node, and between the ranks that have the same place in every node, all places at once, so that
// every network card of a node is in use. Nodes are consecutive ranks, equally many each; the rank with place g of node
// n is n G + g.
#include "comm/phases.h"

namespace braid::comm {
namespace {

struct Levels {
  Parts node{}, aligned{};  // what belongs to place g of any node; of that, what belongs to node n
};

// Block b of P belongs to rank b, so a place's blocks are G apart. PCCL gathers them side by side and transposes
// afterwards; here every message knows where its pieces go.
Levels in_order_of_ranks(const Problem& p, const Blocks& blocks) {
  const int places = p.per_node, place = p.node().me;
  return {.node = {.blocks = blocks, .inner = p.nodes(), .inner_step = places},
          .aligned = {.blocks = blocks, .first = place, .step = places}};
}

// For an all-reduce any order will do: a place's blocks touch.
Levels in_order_of_places(const Problem& p, const Blocks& blocks) {
  const int nodes = p.nodes(), place = p.node().me;
  return {.node = {.blocks = blocks, .step = nodes, .inner = nodes, .inner_step = 1},
          .aligned = {.blocks = blocks, .first = place * nodes}};
}

using Phase = void (*)(Schedule&, const Team&, const Parts&, Space);

void recursive_gather(Schedule& s, const Team& team, const Parts& parts, Space data) {
  lend_parts(s, team, parts, data);
  doubling_all_gather(s, team, parts, data);
  fold_out(s, team, parts.of(data, 0, team.size));
}

void recursive_scatter(Schedule& s, const Team& team, const Parts& parts, Space data) {
  fold_in(s, team, parts.of(data, 0, team.size));
  halving_reduce_scatter(s, team, parts, data);
  return_parts(s, team, parts, data);
}

Schedule pccl_all_gather(const Problem& p, Phase between_nodes) {
  Schedule s;
  const Levels levels = in_order_of_ranks(p, p.blocks);
  copy_to_out(s, p);
  between_nodes(s, p.aligned(), levels.aligned, Space::out);
  ring_all_gather(s, p.node(), levels.node, Space::out);
  return s;
}

Schedule pccl_reduce_scatter(const Problem& p, Phase between_nodes) {
  Schedule s;
  const Levels levels = in_order_of_ranks(p, p.blocks);
  copy_to_scratch(s, p);
  ring_reduce_scatter(s, p.node(), levels.node, Space::scratch);
  between_nodes(s, p.aligned(), levels.aligned, Space::scratch);
  copy_block_to_out(s, p);
  return s;
}

Schedule pccl_all_reduce(const Problem& p, Phase scatter, Phase gather) {
  Schedule s;
  const Levels levels = in_order_of_places(p, Blocks::divided(p.blocks.total(), p.size));
  copy_to_out(s, p);
  ring_reduce_scatter(s, p.node(), levels.node, Space::out);
  scatter(s, p.aligned(), levels.aligned, Space::out);
  gather(s, p.aligned(), levels.aligned, Space::out);
  ring_all_gather(s, p.node(), levels.node, Space::out);
  return s;
}

}  // namespace

Schedule pccl_ring_all_gather(const Problem& p) { return pccl_all_gather(p, &ring_all_gather); }
Schedule pccl_recursive_all_gather(const Problem& p) { return pccl_all_gather(p, &recursive_gather); }
Schedule pccl_ring_reduce_scatter(const Problem& p) { return pccl_reduce_scatter(p, &ring_reduce_scatter); }
Schedule pccl_recursive_reduce_scatter(const Problem& p) { return pccl_reduce_scatter(p, &recursive_scatter); }
Schedule pccl_ring_all_reduce(const Problem& p) { return pccl_all_reduce(p, &ring_reduce_scatter, &ring_all_gather); }
Schedule pccl_recursive_all_reduce(const Problem& p) {
  return pccl_all_reduce(p, &recursive_scatter, &recursive_gather);
}

// A node's rank reduces its slice, Rabenseifner's algorithm runs between nodes, and the node gathers.
Schedule two_level_all_reduce(const Problem& p) {
  Schedule s;
  const Levels levels = in_order_of_places(p, Blocks::divided(p.blocks.total(), p.size));
  const Team aligned = p.aligned();
  const Ranges slice = levels.aligned.of(Space::out, 0, aligned.size);
  copy_to_out(s, p);
  ring_reduce_scatter(s, p.node(), levels.node, Space::out);
  fold_in(s, aligned, slice);
  halving_reduce_scatter(s, aligned, levels.aligned, Space::out);
  doubling_all_gather(s, aligned, levels.aligned, Space::out);
  fold_out(s, aligned, slice);
  ring_all_gather(s, p.node(), levels.node, Space::out);
  return s;
}

// First every rank of a node gets what the node's ranks have for its place in any node, then the ranks of a place
// exchange that: N - 1 messages over the network for each rank in place of (N - 1) G.
Schedule two_level_all_to_all(const Problem& p) {
  Schedule s;
  const int64_t m = p.blocks.count(0);
  const int places = p.per_node, nodes = p.nodes();
  const int64_t at = s.reserve(m * p.size);
  const Team node = p.node(), aligned = p.aligned();
  s.once([=](Round& out) {
    for (int t = 0; t < places; ++t) {
      const int to = node.wrapped(node.me + t), from = node.wrapped(node.me - t);
      Ranges sent, received;
      for (int n = 0; n < nodes; ++n) {
        sent.add(p.blocks.range(Space::in, n * places + to));
        received.add({Space::scratch, at + (n * places + from) * m, m});
        if (t == 0)
          out.copy({Space::scratch, at + (n * places + from) * m, m}, p.blocks.range(Space::in, n * places + to));
      }
      if (t == 0) continue;
      out.send(node.rank(to), sent);
      out.recv(node.rank(from), received);
    }
  });
  s.then(nodes, [=](int64_t round, Round& out) {
    const int t = static_cast<int>(round), to = aligned.wrapped(aligned.me + t), from = aligned.wrapped(aligned.me - t);
    const Range sent{Space::scratch, at + to * places * m, places * m};
    const Range received{Space::out, from * places * m, places * m};
    if (t == 0) return out.copy(received, sent);
    out.send(aligned.rank(to), sent);
    out.recv(aligned.rank(from), received);
  });
  return s;
}

}  // namespace braid::comm
