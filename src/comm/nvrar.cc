// NVRAR, an all-reduce for the 64 KB to 2 MB of a decode step (arXiv 2511.09557; public code
// axonn-ai/yalis): reduce-scatter within a node; recursive doubling of each rank's slice between nodes, with the
// partner storing LL8 cells into this rank's window; all-gather within the node. No barrier separates calls: a slot is
// stored to again only after its reader has said that it is done with it (cells.h).
//
// Unlike that code: slices and pieces of any size, the last cell padded with zeros; any number of nodes, by folding in
// and out over two more slots; a single node skips the middle part; slices larger than a slot go in pieces.
// Every step adds two operands, and their sum is the same on both sides, so all ranks get the same bits.
#include "comm/cells.h"
#include "comm/phases.h"

namespace braid::comm {
namespace {

struct Middle {
  Team team{};
  Range slice{};
  int64_t piece = 1, landing = 0;

  void emit(int64_t round, Round& out) const {
    const Fold fold(team);
    const int doublings = fold.rounds(), folding = fold.extra > 0 ? 1 : 0, rounds = doublings + 2 * folding;
    const auto number = static_cast<uint32_t>(round / rounds);
    const int phase = static_cast<int>(round % rounds) - folding;
    const int64_t begin = number * piece;
    const Range range{slice.space, slice.at + begin, std::min(piece, slice.count - begin)};
    const Range landed{Space::scratch, landing, range.count};
    if (phase >= 0 && phase < doublings) {
      if (fold.lends()) return;
      const int partner = team.rank(fold.member(fold.v() ^ (1 << phase)));
      out.send_cells(partner, range, phase, number);
      out.recv_cells(partner, landed, phase, number);
      return out.reduce(range, landed);
    }
    if (!fold.paired()) return;
    const int partner = team.rank(fold.partner()), slot = phase < 0 ? doublings : doublings + 1;
    if (fold.lends() == (phase < 0)) return out.send_cells(partner, range, slot, number);
    if (phase >= 0) return out.recv_cells(partner, range, slot, number);
    out.recv_cells(partner, landed, slot, number);
    out.reduce(range, landed);
  }
};

}  // namespace

Schedule nvrar_all_reduce(const Problem& p) {
  Schedule s;
  const Parts parts{.blocks = Blocks::divided(p.blocks.total(), p.per_node)};
  copy_to_out(s, p);
  ring_reduce_scatter(s, p.node(), parts, Space::out);
  const Fold fold(p.aligned());
  const int rounds = fold.rounds() + (fold.extra > 0 ? 2 : 0);
  Middle middle{.team = p.aligned(), .slice = parts.blocks.range(Space::out, p.node().me)};
  s.window = {rounds, cells::payload_for(parts.largest(p.per_node) * p.element)};
  middle.piece = s.window.payload / p.element;
  const int64_t pieces = (middle.slice.count + middle.piece - 1) / middle.piece;
  middle.landing = s.reserve(std::min(middle.piece, middle.slice.count));
  s.cell_messages = static_cast<uint32_t>(pieces);
  s.then(pieces * rounds, [middle](int64_t round, Round& out) { middle.emit(round, out); });
  ring_all_gather(s, p.node(), parts, Space::out);
  return s;
}

}  // namespace braid::comm
