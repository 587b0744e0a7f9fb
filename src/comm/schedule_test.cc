// Schedules by themselves, without a transport: every message that is sent is received, with the same count and in the
// same order; no round has a message that writes what another touches; nothing lies outside its buffer.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <vector>

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

TEST(Blocks, AreEvenWhenAllCountsAreEqual) {
  const auto even = [](const std::vector<int64_t>& counts) { return Blocks::of_counts(counts).even(); };
  EXPECT_TRUE(even({2, 2, 2}) && even({0, 0}) && even({5}));
  EXPECT_FALSE(even({2, 1, 3}) || even({2, 2, 0, 4}) || even({0, 1}));
  EXPECT_TRUE(Blocks::equal(3, 4).even() && Blocks::divided(12, 4).even());
  EXPECT_FALSE(Blocks::divided(13, 4).even());
}

// A window begins with zeros, and cells of a message stay until others are stored over them.
TEST(Cells, NoNumberIsThatOfAnEmptyOrAnOldCell) {
  constexpr cells::Layout kLayout{.slots = 2, .payload = 4096};
  constexpr uint64_t kAround = 0xffffffff;  // messages until cells hold the same number again
  const auto empty = [&] { return std::vector<std::byte>(static_cast<size_t>(kLayout.bytes())); };
  std::vector<std::byte> reader = empty(), sender = empty();
  const auto taken_at_once = [&](uint64_t number, int64_t bytes) {
    std::vector<std::byte> got(static_cast<size_t>(bytes));
    int64_t taken = 0;
    return cells::take(reader.data(), kLayout, 1, number, got, &taken);
  };
  for (const uint64_t number :
       {uint64_t{1}, kAround - 1, kAround, kAround + 1, kAround + 2, 2 * kAround, 2 * kAround + 1})
    EXPECT_FALSE(taken_at_once(number, 4)) << number;
  // A long message once, and short ones until numbers begin again.
  const std::vector<std::byte> message(400, std::byte{7});
  for (const uint64_t number : {uint64_t{1}, uint64_t{2}, kAround}) {
    cells::store(reader.data(), kLayout, 1, number, std::span(message).first(number == 1 ? 400 : 4));
    EXPECT_TRUE(taken_at_once(number, number == 1 ? 400 : 4)) << number;
    cells::say_taken(reader.data(), sender.data(), kLayout, 1, number);
    EXPECT_TRUE(cells::may_store(sender.data(), kLayout, 1, number + 1)) << number;
    EXPECT_FALSE(cells::may_store(sender.data(), kLayout, 1, number) ||
                 cells::may_store(sender.data(), kLayout, 1, number + 2) ||
                 cells::may_store(sender.data(), kLayout, 0, number + 1))
        << number;
  }
  EXPECT_FALSE(taken_at_once(kAround + 1, 400));
  cells::store(reader.data(), kLayout, 1, kAround + 1, std::span(message).first(4));
  EXPECT_FALSE(taken_at_once(kAround + 1, 400));
  EXPECT_TRUE(taken_at_once(kAround + 1, 4));
}

TEST(Cells, AWindowIsKnownByItsGroupAndItsLayout) {
  std::set<uint64_t> keys;
  for (const uint32_t context : {0u, 1u, 0xffffffffu}) {
    for (const int slots : {1, 2, 256}) {
      for (const int64_t payload : {int64_t{4096}, cells::kPayloadMost})
        keys.insert(cells::key_of(context, {slots, payload}));
    }
  }
  EXPECT_EQ(keys.size(), 3u * 3 * 2);
}

}  // namespace
}  // namespace braid::comm
