// Rows that travel to the ranks of their experts and back: what arrives, in which order, what comes back, to the last
// bit alike for all dispatchers, and how many bytes that takes.
#include "nn/expert_routes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "comm/inproc.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

constexpr int64_t kExperts = 8, kSlots = 3, kWidth = 5;
constexpr Dispatcher kAll[] = {Dispatcher::alltoall, Dispatcher::allgather, Dispatcher::node};

struct Layout {
  int ranks = 1, per_node = 1;
  int64_t parts = 1;

  int64_t shares() const { return ranks / parts; }
  int64_t each() const { return kExperts / shares(); }
  bool holds(int rank, int32_t expert) const { return expert >= 0 && rank / parts == expert / each(); }
  int node(int rank) const { return rank / per_node; }
};

// The choices of a rank: [tokens, kSlots] distinct experts.
using Choose = std::vector<int32_t> (*)(int rank);

std::vector<int32_t> uneven(int rank) {  // 1 to 7 tokens; experts 2 and 3, with 8 a rank's all, are never chosen
  constexpr int32_t kUsed[] = {0, 1, 4, 5, 6, 7};
  std::vector<int32_t> list;
  for (int t = 0; t < (rank * 5) % 7 + 1; ++t) {
    for (int j = 0; j < kSlots; ++j) list.push_back(kUsed[static_cast<size_t>((rank + t * t + j * (1 + t % 2)) % 6)]);
  }
  return list;
}
std::vector<int32_t> balanced(int) {  // 16 tokens, 6 for each expert
  std::vector<int32_t> list(16 * kSlots);
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<int32_t>(i % kExperts);
  return list;
}
std::vector<int32_t> crowded(int rank) {  // the last rank's experts get nothing; those of the first get all
  return {0, 1, 0, 1, 1, 0, static_cast<int32_t>(rank % 2), 0, 1};
}
std::vector<int32_t> dropped(int rank) {  // of 9 tokens, every other slot, and a token as a whole
  std::vector<int32_t> list;
  for (int i = 0; i < 9 * kSlots; ++i) list.push_back(i % 2 == 0 || i / kSlots == 4 ? -1 : (i + rank) % 8);
  return list;
}

float value(int rank, int64_t token, int64_t col) {
  return std::sin(static_cast<float>(1 + rank * 1000 + token * 17 + col));
}
float weight(int rank, int64_t slot) { return 0.25f + static_cast<float>((rank + slot) % 5); }
// What part `part` of an expert makes of a row.
float made(float x, float w, int32_t expert, int64_t part) {
  return w * (x * static_cast<float>(expert + 1) + static_cast<float>(part) / 3);
}

struct Result {
  std::vector<float> rows, weights, sums, slot_sums;
  std::vector<int32_t> experts;
  int64_t told = 0, sent = 0, weighed = 0, back = 0;  // bytes of each call
  int64_t between = 0;                                // of `sent`, between nodes
};

struct Buffer {
  std::vector<float> values;
  Shape shape;
  Buffer(int64_t rows, int64_t cols) : values(static_cast<size_t>(rows * cols), NAN), shape{rows, cols} {}
  MutView mut() { return mut_view_of(values.data(), shape); }
};

Result dispatch(comm::Group& world, const Layout& layout, Dispatcher dispatcher, const std::vector<int32_t>& chosen) {
  const int rank = world.rank();
  comm::Group node = world.split(rank / layout.per_node), aligned = world.split(rank % layout.per_node);
  const ExpertRanks ranks{
      .all = &world, .node = &node, .aligned = &aligned, .parts = layout.parts, .dispatcher = dispatcher};
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  const auto slots = std::ssize(chosen), tokens = slots / kSlots;
  Buffer x(tokens, kWidth), w(tokens, kSlots), sums(tokens, kWidth), slot_sums(tokens, kSlots);
  for (int64_t i = 0; i < x.shape.count(); ++i) x.values[static_cast<size_t>(i)] = value(rank, i / kWidth, i % kWidth);
  for (int64_t i = 0; i < slots; ++i) w.values[static_cast<size_t>(i)] = weight(rank, i);

  Result out;
  const auto counted = [&](int64_t& bytes, auto&& call) {
    const comm::Traffic before = world.traffic();
    call();
    const comm::Traffic& after = world.traffic();
    bytes = after.bytes[0] + after.bytes[1] - before.bytes[0] - before.bytes[1];
    return after.bytes[1] - before.bytes[1];
  };
  std::optional<ExpertRoutes> routes;
  counted(out.told, [&] { routes.emplace(ctx, ranks, view_of(chosen.data(), {tokens, kSlots}), kExperts); });
  Buffer rows(routes->rows(), kWidth), weights(routes->rows(), 1), results(routes->rows(), kWidth);
  out.between = counted(out.sent, [&] { routes->send(ctx, x.mut(), rows.mut()); });
  counted(out.weighed, [&] { routes->send_slots(ctx, w.mut(), weights.mut()); });
  const auto first = static_cast<int32_t>(rank / layout.parts * layout.each());
  for (size_t i = 0; i < results.values.size(); ++i) {
    const size_t row = i / kWidth;
    results.values[i] = made(rows.values[i], weights.values[row], first + routes->experts()[row], rank % layout.parts);
  }
  counted(out.back, [&] { routes->add_up(ctx, results.mut(), sums.mut()); });
  routes->add_up_slots(ctx, weights.mut(), slot_sums.mut());
  for (const int32_t e : routes->experts()) out.experts.push_back(first + e);
  out.rows = rows.values, out.weights = weights.values, out.sums = sums.values, out.slot_sums = slot_sums.values;
  return out;
}

std::vector<Result> on_ranks(const Layout& layout, Dispatcher dispatcher, Choose choose) {
  return support::on_ranks(layout.ranks, {.per_node = layout.per_node}, [&](comm::Group& world) {
    return dispatch(world, layout, dispatcher, choose(world.rank()));
  });
}

constexpr Layout kLayouts[] = {{1, 1, 1}, {2, 1, 1}, {2, 2, 2}, {4, 2, 1}, {4, 2, 2}, {4, 4, 4}, {8, 4, 2}, {8, 2, 1}};

// By source rank, then expert, then token.
void expect_arrived(const Layout& layout, int rank, Choose choose, const Result& got) {
  size_t at = 0;
  for (int source = 0; source < layout.ranks; ++source) {
    const std::vector<int32_t> chosen = choose(source);
    for (int32_t e = 0; e < kExperts; ++e) {
      if (!layout.holds(rank, e)) continue;
      for (size_t slot = 0; slot < chosen.size(); ++slot) {
        if (chosen[slot] != e) continue;
        ASSERT_LT(at, got.experts.size());
        EXPECT_EQ(got.experts[at], e);
        EXPECT_EQ(got.weights[at], weight(source, static_cast<int64_t>(slot)));
        for (int64_t col = 0; col < kWidth; ++col) {
          ASSERT_EQ(got.rows[at * kWidth + static_cast<size_t>(col)],
                    value(source, static_cast<int64_t>(slot) / kSlots, col));
        }
        ++at;
      }
    }
  }
  EXPECT_EQ(at, got.experts.size());
}

// In the order of slots, and of parts: to the bit.
void expect_sums(const Layout& layout, int rank, const std::vector<int32_t>& chosen, const Result& got) {
  for (int64_t t = 0; t < std::ssize(chosen) / kSlots; ++t) {
    for (int64_t col = 0; col < kWidth; ++col) {
      float sum = 0;
      for (int64_t slot = t * kSlots; slot < (t + 1) * kSlots; ++slot) {
        for (int64_t part = 0; chosen[static_cast<size_t>(slot)] >= 0 && part < layout.parts; ++part)
          sum += made(value(rank, t, col), weight(rank, slot), chosen[static_cast<size_t>(slot)], part);
      }
      ASSERT_EQ(got.sums[static_cast<size_t>(t * kWidth + col)], sum) << t;
    }
  }
  for (int64_t slot = 0; slot < std::ssize(chosen); ++slot) {
    const int64_t parts = chosen[static_cast<size_t>(slot)] < 0 ? 0 : layout.parts;
    EXPECT_EQ(got.slot_sums[static_cast<size_t>(slot)], static_cast<float>(parts) * weight(rank, slot));
  }
}

TEST(ExpertRoutes, RowsArriveInOrderAndComeBackAsSums) {
  for (const Layout& layout : kLayouts) {
    for (const Choose choose : {uneven, balanced, crowded, dropped}) {
      for (const Dispatcher dispatcher : kAll) {
        SCOPED_TRACE(testing::Message() << layout.ranks << " ranks, " << layout.per_node << " a node, " << layout.parts
                                        << " parts, dispatcher " << static_cast<int>(dispatcher));
        const std::vector<Result> got = on_ranks(layout, dispatcher, choose);
        for (int rank = 0; rank < layout.ranks; ++rank) {
          expect_arrived(layout, rank, choose, got[static_cast<size_t>(rank)]);
          expect_sums(layout, rank, choose(rank), got[static_cast<size_t>(rank)]);
        }
      }
    }
  }
}

// Rows from `rank` to other ranks where `counts` says how often a token of those choices goes to one.
template <class Times>
int64_t rows_to_others(const Layout& layout, int rank, const std::vector<int32_t>& chosen, Times&& times) {
  int64_t rows = 0;
  for (int to = 0; to < layout.ranks; ++to) {
    if (to != rank) rows += times(to, chosen);
  }
  return rows;
}

int64_t slots_for(const Layout& layout, int rank, const std::vector<int32_t>& chosen) {
  return std::count_if(chosen.begin(), chosen.end(), [&](int32_t e) { return layout.holds(rank, e); });
}

TEST(ExpertRoutes, EverySlotTravelsOnceToEveryPart) {
  for (const Layout& layout : kLayouts) {
    for (const Choose choose : {uneven, balanced, crowded, dropped}) {
      const std::vector<Result> got = on_ranks(layout, Dispatcher::alltoall, choose);
      for (int rank = 0; rank < layout.ranks; ++rank) {
        const Result& own = got[static_cast<size_t>(rank)];
        const auto leaving =
            rows_to_others(layout, rank, choose(rank),
                           [&](int to, const std::vector<int32_t>& chosen) { return slots_for(layout, to, chosen); });
        int64_t returning = 0;
        for (int from = 0; from < layout.ranks; ++from) {
          if (from != rank) returning += slots_for(layout, rank, choose(from));
        }
        EXPECT_EQ(own.told, 4 * (layout.ranks - 1) * layout.each());
        EXPECT_EQ(own.sent, 4 * leaving * kWidth);
        EXPECT_EQ(own.weighed, 4 * leaving);
        EXPECT_EQ(own.back, 4 * returning * kWidth);
        if (choose != balanced) continue;  // T K R (parts - 1 / E)
        EXPECT_EQ(own.sent * layout.shares(), 4 * 16 * kSlots * kWidth * (layout.parts * layout.shares() - 1));
      }
    }
  }
}

TEST(ExpertRoutes, AllTokensTravelToAllRanks) {
  for (const Layout& layout : kLayouts) {
    for (const Result& own : on_ranks(layout, Dispatcher::allgather, balanced)) {
      EXPECT_EQ(own.told, (layout.ranks - 1) * (8 + 4 * 16 * kSlots));
      EXPECT_EQ(own.sent, 4 * (layout.ranks - 1) * 16 * kWidth);
    }
  }
}

TEST(ExpertRoutes, ATokenCrossesOnceToEveryNode) {
  for (const Layout& layout : kLayouts) {
    for (const Choose choose : {uneven, balanced, crowded, dropped}) {
      const std::vector<Result> got = on_ranks(layout, Dispatcher::node, choose);
      for (int rank = 0; rank < layout.ranks; ++rank) {
        const std::vector<int32_t> chosen = choose(rank);
        int64_t crossings = 0;
        for (size_t token = 0; token < chosen.size(); token += kSlots) {
          std::set<int> nodes;
          for (int to = 0; to < layout.ranks; ++to) {
            for (size_t slot = token; slot < token + kSlots; ++slot) {
              if (layout.holds(to, chosen[slot])) nodes.insert(layout.node(to));
            }
          }
          crossings += std::ssize(nodes) - static_cast<int64_t>(nodes.count(layout.node(rank)));
        }
        EXPECT_EQ(got[static_cast<size_t>(rank)].between, 4 * crossings * kWidth);
      }
    }
  }
}

}  // namespace
}  // namespace braid::nn
