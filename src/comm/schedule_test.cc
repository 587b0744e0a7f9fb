// Schedules by themselves, without a transport: every message that is sent is received, with the same count and in the
// same order; no round has a message that writes what another touches; nothing lies outside its buffer.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "comm/algorithm.h"
#include "comm/comm_fixture.h"

namespace braid::comm {
namespace {

struct Sizes {
  int64_t in = 0, out = 0, scratch = 0;
  int64_t of(Space s) const { return s == Space::in ? in : s == Space::out ? out : scratch; }
};

Sizes sizes_of(const Problem& p, const Schedule& s) {
  const int64_t total = p.blocks.total(), own = p.blocks.blocks() > 1 || p.op == Op::all_gather
                                                    ? p.blocks.count(p.rank % p.blocks.blocks())
                                                    : total;
  if (p.op == Op::all_gather) return {own, total, s.scratch};
  if (p.op == Op::reduce_scatter) return {total, p.blocks.count(p.rank), s.scratch};
  if (p.op == Op::all_to_all) return {total, p.received.total(), s.scratch};
  return {total, total, s.scratch};
}

bool inside(const Range& r, const Sizes& sizes) {
  return r.at >= 0 && r.count >= 0 && r.at + r.count <= sizes.of(r.space);
}

// A byte that a received message writes belongs to no other message of the round.
void expect_apart(const Round& round, const std::string& text) {
  std::vector<std::pair<Range, bool>> touched;
  for (const Transfer& t : round.transfers()) {
    const bool writes = t.kind == Transfer::Kind::recv;
    for (const Range& r : round.ranges(t)) {
      for (const auto& [other, wrote] : touched) {
        const bool apart = r.space != other.space || r.at + r.count <= other.at || other.at + other.count <= r.at;
        ASSERT_TRUE(apart || !(writes || wrote)) << text;
      }
      touched.emplace_back(r, writes);
    }
  }
}

void expect_sound(const Algorithm& a, Problem p, const std::string& text) {
  // Per (from, to, lane): the counts sent minus those received so far, which must end equal.
  std::map<std::tuple<int, int, int>, std::pair<std::vector<int64_t>, std::vector<int64_t>>> wires;
  for (p.rank = 0; p.rank < p.size; ++p.rank) {
    if (p.op == Op::all_to_all) p.received = p.blocks;
    const Schedule s = a.make(p);
    const Sizes sizes = sizes_of(p, s);
    for (const Stage& stage : s.stages) {
      for (int64_t k = 0; k < stage.rounds; ++k) {
        Round round;
        stage.emit(k, round);
        expect_apart(round, text);
        for (const Transfer& t : round.transfers()) {
          ASSERT_TRUE(t.peer >= 0 && t.peer < p.size && t.peer != p.rank) << text << " peer " << t.peer;
          const bool sends = t.kind == Transfer::Kind::send;
          const int lane = t.slot >= 0 ? 100 + t.slot : t.lane;
          auto& wire = wires[{sends ? p.rank : t.peer, sends ? t.peer : p.rank, lane}];
          (sends ? wire.first : wire.second).push_back(t.count);
          for (const Range& r : round.ranges(t)) ASSERT_TRUE(inside(r, sizes)) << text << " rank " << p.rank;
        }
        for (const Local& local : round.locals()) {
          ASSERT_TRUE(inside(local.dst, sizes) && inside(local.src, sizes)) << text << " rank " << p.rank;
          ASSERT_NE(static_cast<int>(local.dst.space), static_cast<int>(Space::in)) << text;
        }
      }
    }
  }
  for (const auto& [key, wire] : wires) ASSERT_EQ(wire.first, wire.second) << text;
}

TEST(Schedule, MessagesMatchAndDoNotOverlap) {
  for (int size = 1; size <= 17; ++size) {
    for (const int per_node : node_sizes(size)) {
      for (const Algorithm& a : algorithms()) {
        for (const int64_t count : {0, 1, 7, 100, 40000}) {
          for (const bool in_place : {false, true}) {
            Problem p{.op = a.op, .size = size, .per_node = per_node, .root = size / 2, .in_place = in_place};
            p.blocks = a.op == Op::all_gather || a.op == Op::reduce_scatter || a.op == Op::all_to_all
                           ? Blocks::equal(count / size, size)
                           : Blocks::equal(count, 1);
            if (a.op == Op::barrier) p.blocks = {};
            expect_sound(a, p,
                         std::string(name_of(a.op)) + " " + a.name + " of " + std::to_string(count) + " on " +
                             std::to_string(size) + " by " + std::to_string(per_node));
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::comm
