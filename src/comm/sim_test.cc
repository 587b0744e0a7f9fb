// The simulated cluster: results with payload at every size of group, bytes against closed forms, times against
// the formulas of machines where nothing is shared, and what sharing costs.
#include "comm/sim.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "comm/algorithm.h"
#include "comm/cells.h"
#include "comm/comm_fixture.h"
#include "comm/published.h"

namespace braid::comm {
namespace {

Cluster cluster_of(int nodes, int gpus) {
  Cluster c = *cluster_preset("equal");
  c.nodes = nodes;
  c.gpus = c.nics = gpus;
  return c;
}

// A request with payload, checked against FP64. `counts`: of the blocks of an all-gather or a reduce-scatter.
SimResult run_and_check(const Cluster& cluster, const Request& request, const std::string& text,
                        const std::vector<int64_t>& counts = {}) {
  const int ranks = cluster.ranks();
  std::deque<Guarded> ins, outs;
  std::vector<Player> players;
  std::vector<Problem> problems;
  for (int r = 0; r < ranks; ++r) {
    Problem& p = problems.emplace_back(problem_of(request, r, ranks, cluster.gpus));
    if (!counts.empty()) p.blocks = Blocks::of_counts(counts);
    const int64_t own = p.blocks.blocks() > 1 || ranks == 1 ? p.blocks.count(r) : 0;
    const bool gathers = request.op == Op::all_gather, scatters = request.op == Op::reduce_scatter;
    ins.emplace_back(request.type, gathers ? own : p.blocks.total()).fill_from(r);
    outs.emplace_back(request.type, scatters ? own : p.blocks.total());
    if (request.op == Op::broadcast && r == request.root) outs.back().fill_from(r);
    players.emplace_back(algorithm_for(p, request.algorithm).make(p),
                         Buffers{ins.back().view().data, outs.back().view().data}, request.type, request.reduction);
  }
  const SimResult result = simulate(cluster, players);
  std::map<int64_t, Expected> sums;
  for (int r = 0; r < ranks; ++r) {
    const MutView out = outs[static_cast<size_t>(r)].view();
    const Blocks& blocks = problems[static_cast<size_t>(r)].blocks;
    EXPECT_TRUE(outs[static_cast<size_t>(r)].guards_intact()) << text;
    if (request.op == Op::reduce && r != request.root) continue;
    for (int64_t i = 0; i < out.count(); ++i) {
      double expected = 0, allowed = 0;
      if (request.op == Op::broadcast) {
        expected = input_value(request.type, request.root, i);
      } else if (request.op == Op::all_gather || request.op == Op::all_to_all) {
        int from = 0;
        while (blocks.at(from + 1) <= i) ++from;
        const int64_t place = i - blocks.at(from) + (request.op == Op::all_to_all ? blocks.at(r) : 0);
        expected = input_value(request.type, from, place);
      } else {
        const int64_t position = i + (request.op == Op::reduce_scatter ? blocks.at(r) : 0);
        const auto [known, fresh] = sums.try_emplace(position);
        if (fresh) known->second = reduced(request.type, request.reduction, ranks, position);
        const Expected& e = known->second;
        expected = e.value;
        allowed = bound(request.type, ranks, e.magnitude);
      }
      const bool right = std::fabs(element(out, i) - expected) <= allowed;
      EXPECT_TRUE(right) << text << " rank " << r << " at " << i << ": " << element(out, i) << ", not " << expected;
      if (!right) return result;
    }
  }
  return result;
}

TEST(Sim, EveryAlgorithmGivesTheSum) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int gpus : node_sizes(ranks)) {
      for (const Algorithm& a : algorithms()) {
        for (const int64_t count : {0, 1, 45, 1031}) {
          const Request request{.op = a.op, .algorithm = a.name, .count = count, .root = ranks - 1};
          run_and_check(cluster_of(ranks / gpus, gpus), request,
                        std::string(name_of(a.op)) + " " + a.name + " of " + std::to_string(count) + " on " +
                            std::to_string(ranks) + " by " + std::to_string(gpus));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Sim, EveryTypeOnSixteenAndSixtyFourRanks) {
  for (const int nodes : {4, 16}) {
    for (const Algorithm& a : algorithms()) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8}) {
        run_and_check(cluster_of(nodes, 4), {.op = a.op, .algorithm = a.name, .type = type, .count = 131},
                      std::string(name_of(a.op)) + " " + a.name + " " + braid::name_of(type));
        if (HasFailure()) return;
      }
    }
  }
}

// Groups that make the same call at once send what one of them sends alone, each; over the whole cluster it is one
// call.
TEST(Sim, GroupsMakeTheirCallsAtOnce) {
  const Cluster cluster = cluster_of(4, 4);
  for (const Op op : {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::all_to_all}) {
    const Request request{.op = op, .count = 1 << 16};
    const SimResult whole = simulate(cluster, request), one = simulate(cluster, request, {.size = 16});
    EXPECT_EQ(whole.us, one.us) << name_of(op);
    EXPECT_EQ(whole.bytes, one.bytes) << name_of(op);
    const int64_t others = op == Op::all_reduce ? 2 * 3 : 3;  // parts of four that a member sends
    for (const Groups& groups : {Groups{4, 1}, Groups{4, 4}}) {
      const SimResult four = simulate(cluster, request, groups);
      const auto level = groups.stride == 1 ? 0u : 1u;
      EXPECT_EQ(four.bytes[level], 16 * others * (1 << 16)) << name_of(op) << groups.stride;
      EXPECT_EQ(four.bytes[1 - level], 0) << name_of(op) << groups.stride;
    }
  }
  EXPECT_EQ(members_per_node(cluster, {.size = 8, .stride = 2}), 2);
  EXPECT_EQ(members_per_node(cluster, {.size = 4, .stride = 4}), 1);
  EXPECT_EQ(members_per_node(cluster_of(2, 3), {.size = 2, .stride = 2}), 2);
  const SimResult shifted = simulate_shift(cluster, 1000, 4);
  EXPECT_EQ(shifted.bytes[1], 16 * 1000);
  EXPECT_EQ(shifted.messages[1], 16);
}

TEST(Sim, FourThousandRanks) {
  for (const char* name : {"nvrar", "rabenseifner", "double_tree"}) {
    const SimResult r =
        run_and_check(cluster_of(512, 8), {.op = Op::all_reduce, .algorithm = name, .count = 100}, name);
    EXPECT_GT(r.us, 0) << name;
  }
  run_and_check(cluster_of(512, 8), {.op = Op::all_gather, .algorithm = "pccl_recursive", .count = 100}, "pccl");
}

// Closed forms of all bytes sent, n bytes a vector.
int64_t all_bytes(const Algorithm& a, int64_t n, int64_t ranks, int64_t nodes) {
  const std::string name = a.name;
  const int64_t core = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(ranks))), extra = ranks - core;
  const int64_t bits = std::countr_zero(static_cast<uint64_t>(core));
  switch (a.op) {
    case Op::barrier:
      return 0;
    case Op::broadcast:
    case Op::reduce:
      return (ranks - 1) * n;
    case Op::all_reduce:
      if (name == "recursive") return core * bits * n + 2 * extra * n;
      if (name == "rabenseifner") return 2 * (core - 1) * n + 2 * extra * n;
      return 2 * (ranks - 1) * n;
    case Op::all_gather:
    case Op::reduce_scatter:
      return (ranks - 1) * n;
    case Op::all_to_all:
      return (ranks - 1) * n;
  }
  return nodes;
}

TEST(Sim, BytesOfFlatAlgorithmsAreTheFormulas) {
  for (const int ranks : {2, 3, 8, 12, 17}) {
    for (const Algorithm& a : algorithms()) {
      const bool by_nodes = a.refuses({.op = a.op, .per_node = 0}) != nullptr;
      const std::string name = a.name;
      // Measured apart: those that fold in or forward blocks.
      if (by_nodes || (name == "bruck" && a.op == Op::all_to_all) ||
          (name == "recursive" && (a.op == Op::all_gather || a.op == Op::reduce_scatter)))
        continue;
      const int64_t count = ranks * 24 + (a.op == Op::all_reduce ? 5 : 0);
      const SimResult r = simulate(cluster_of(ranks, 1), {.op = a.op, .algorithm = name, .count = count});
      EXPECT_EQ(r.bytes[1], all_bytes(a, count * 4, ranks, ranks)) << name_of(a.op) << " " << name << " " << ranks;
      EXPECT_EQ(r.bytes[0] + r.bytes[2], 0);
    }
  }
}

TEST(Sim, BytesOfRecursiveGatherAndScatter) {
  for (const int ranks : {4, 6, 7, 16}) {
    const int64_t core = std::bit_floor(static_cast<unsigned>(ranks)), extra = ranks - core, block = 40,
                  n = ranks * block;
    const Cluster c = cluster_of(ranks, 1);
    // Lenders' blocks go in, everything comes out; between them the core exchanges all but its own.
    EXPECT_EQ(simulate(c, {.op = Op::all_gather, .algorithm = "recursive", .count = n / 4}).bytes[1],
              extra * block + (core - 1) * n + extra * n);
    EXPECT_EQ(simulate(c, {.op = Op::reduce_scatter, .algorithm = "recursive", .count = n / 4}).bytes[1],
              extra * n + (core - 1) * n + extra * block);
    // Bruck's all-to-all: round k carries the blocks of the distances with bit k.
    int64_t blocks = 0;
    for (int d = 1; d < ranks; ++d) blocks += std::popcount(static_cast<unsigned>(d));
    EXPECT_EQ(simulate(c, {.op = Op::all_to_all, .algorithm = "bruck", .count = n / 4}).bytes[1],
              ranks * blocks * block);
  }
}

TEST(Sim, BytesOfEachLevel) {
  const int64_t count = 24 * 16 * 3, n = count * 4;
  for (const int nodes : {1, 2, 3, 4, 6}) {
    for (const int gpus : {1, 2, 4}) {
      const Cluster c = cluster_of(nodes, gpus);
      const int64_t core = std::bit_floor(static_cast<unsigned>(nodes)), extra = nodes - core;
      const int64_t bits = std::countr_zero(static_cast<unsigned>(core));
      const auto bytes = [&](Op op, const char* name) {
        return simulate(c, {.op = op, .algorithm = name, .count = count}).bytes;
      };
      using Levels = std::array<int64_t, kLevels>;
      // A ring inside every node; between nodes G slices, that is one vector, in each step.
      const int64_t inside = 2 * (gpus - 1) * n * nodes;
      EXPECT_EQ(bytes(Op::all_reduce, "nvrar"), (Levels{inside, 2 * n * (core * bits + 2 * extra), 0}));
      EXPECT_EQ(bytes(Op::all_reduce, "two_level"), (Levels{inside, 2 * n * (core - 1 + extra), 0}));
      EXPECT_EQ(bytes(Op::all_reduce, "pccl_ring"), (Levels{inside, 2 * n * (nodes - 1), 0}));
      EXPECT_EQ(bytes(Op::all_gather, "pccl_ring"), (Levels{inside / 2, n * (nodes - 1), 0}));
      EXPECT_EQ(bytes(Op::reduce_scatter, "pccl_ring"), (Levels{inside / 2, n * (nodes - 1), 0}));
      EXPECT_EQ(bytes(Op::all_gather, "pccl_recursive"),
                (Levels{inside / 2, n * (core - 1 + extra) + extra * n / nodes, 0}));
      EXPECT_EQ(bytes(Op::all_to_all, "two_level"),
                (Levels{static_cast<int64_t>(gpus - 1) * n * nodes, static_cast<int64_t>(nodes - 1) * n * gpus, 0}));
      // A flat ring crosses the network once a node.
      const int64_t crossings = nodes > 1 ? nodes : 0, edges = nodes * gpus > 1 ? nodes * gpus : 0;
      const int64_t edge = 2 * (n - n / (nodes * gpus));
      EXPECT_EQ(bytes(Op::all_reduce, "ring"), (Levels{(edges - crossings) * edge, crossings * edge, 0}));
    }
  }
}

TEST(Sim, CellsOfOddSizesArePadded) {
  // 7 elements of BF16 in 2 slices of 4 and 3: 2 cells each.
  const SimResult r =
      simulate(cluster_of(2, 2), {.op = Op::all_reduce, .algorithm = "nvrar", .type = DType::bf16, .count = 7});
  EXPECT_EQ(r.bytes[1], 2 * (2 + 2) * 8);
  EXPECT_EQ(cells::wire_bytes(5), 16);
}

// One latency, one rate, nothing shared: the formulas of textbooks, to the last digit.
TEST(Sim, TimesWithoutSharingAreTheFormulas) {
  const int64_t count = 16 * 1000;
  const double alpha = 1, beta = 1 / (10 * 1e3), n = static_cast<double>(count * 4);  // us, us a byte
  const auto us = [&](Op op, const char* name) {
    return simulate(cluster_of(16, 1), {.op = op, .algorithm = name, .count = count}).us;
  };
  EXPECT_NEAR(us(Op::all_reduce, "ring"), 30 * alpha + 30.0 / 16 * n * beta, 1e-3);
  EXPECT_NEAR(us(Op::all_reduce, "recursive"), 4 * (alpha + n * beta), 1e-3);
  EXPECT_NEAR(us(Op::all_reduce, "rabenseifner"), 8 * alpha + 30.0 / 16 * n * beta, 1e-3);
  EXPECT_NEAR(us(Op::all_gather, "bruck"), 4 * alpha + 15.0 / 16 * n * beta, 1e-3);
  EXPECT_NEAR(us(Op::all_to_all, "pairwise"), 15 * alpha + 15.0 / 16 * n * beta, 1e-3);
  EXPECT_NEAR(us(Op::broadcast, "binomial"), 4 * (alpha + n * beta), 1e-3);
  EXPECT_NEAR(us(Op::barrier, "recursive"), 4 * alpha, 1e-9);
  // Cells double the bytes and halve the rounds.
  EXPECT_NEAR(us(Op::all_reduce, "nvrar"), 4 * (alpha + 2 * n * beta), 1e-3);
}

TEST(Sim, NetworkCardsAreShared) {
  Cluster four = cluster_of(4, 4), one = four;
  one.nics = 1;
  const Request request{.op = Op::all_gather, .algorithm = "pccl_ring", .count = 1 << 20};
  const double apart = simulate(four, request).us, together = simulate(one, request).us;
  // 3 of the 4 MB times 1/4 over each of four cards, or over one; the node's ring takes as long in both.
  const double network = 0.75 * 4.194304e6 / 4 / 10e3;
  EXPECT_NEAR(together - apart, 3 * network, 3 * 1);  // latencies are hidden
  EXPECT_EQ(simulate(four, request).bytes, simulate(one, request).bytes);
}

TEST(Sim, ATaperedRackSlowsWhatLeavesIt) {
  Cluster flat = cluster_of(8, 1), tapered = flat;
  flat.rack_nodes = tapered.rack_nodes = 4;
  tapered.taper = 4;
  const auto us = [](const Cluster& c, const char* name) {
    return simulate(c, {.op = Op::all_gather, .algorithm = name, .count = 1 << 20}).us;
  };
  EXPECT_GT(us(tapered, "bruck"), 1.5 * us(flat, "bruck"));
  EXPECT_LT(us(tapered, "ring"), 1.01 * us(flat, "ring"));  // two of its eight edges leave a rack, one at a time
  const SimResult r = simulate(tapered, {.op = Op::all_gather, .algorithm = "ring", .count = 1 << 20});
  EXPECT_EQ(r.bytes[2] * 4, (r.bytes[1] + r.bytes[2]));
}

TEST(Sim, JitterIsSeeded) {
  Cluster c = cluster_of(4, 2);
  c.jitter = 0.3;
  const auto us = [&](uint64_t seed) {
    c.seed = seed;
    return simulate(c, {.op = Op::all_reduce, .algorithm = "ring", .count = 1000}).us;
  };
  EXPECT_EQ(us(1), us(1));
  EXPECT_NE(us(1), us(2));
  c.jitter = 0;
  const double calm = us(1);
  c.jitter = 0.3;
  EXPECT_GT(us(1), calm);
}

// What is late does not fall behind what was sent after it: every message is the one that its receiver waits for.
TEST(Sim, JitterLetsNoMessageOvertake) {
  for (const double jitter : {0.1, 0.3, 1.0}) {
    for (uint64_t seed = 1; seed <= 16; ++seed) {
      for (const Algorithm& a : algorithms()) {
        Cluster c = cluster_of(3, 2);
        c.jitter = jitter;
        c.seed = seed;
        c.network.gb_per_s = 1000;  // what is sent later is soon sent
        const std::string text = std::string(name_of(a.op)) + " " + a.name + " with jitter " + std::to_string(jitter) +
                                 " and seed " + std::to_string(seed);
        run_and_check(c, {.op = a.op, .algorithm = a.name, .count = 43}, text);
        if (a.op == Op::all_gather || a.op == Op::reduce_scatter)
          run_and_check(c, {.op = a.op, .algorithm = a.name}, text + " uneven", uneven_counts(c.ranks(), 7));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Sim, RanksMayBeginApart) {
  const Cluster c = cluster_of(4, 1);
  std::vector<Player> players;
  for (int r = 0; r < 4; ++r) {
    const Problem p = problem_of({.op = Op::barrier}, r, 4, 1);
    players.emplace_back(recursive_barrier(p), DType::u8, Reduction::sum);
  }
  const double starts[] = {0, 50, 0, 0};
  const SimResult r = simulate(c, players, starts);
  for (size_t i = 0; i < 4; ++i) EXPECT_GE(r.finish_us[i], i == 1 ? 50 : 51);
}

// Regret: how much longer the choice by size takes than the best algorithm that there is.
TEST(Sim, TheChoiceBySizeHasLittleRegret) {
  for (const Op op : {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::all_to_all}) {
    double sum = 0, worst = 0, count = 0;
    for (const char* preset : {"perlmutter", "h100-ib", "frontier"}) {
      for (int64_t bytes = 8 << 10; bytes <= 64 << 20; bytes *= 4) {
        const Cluster c = *cluster_preset(preset);
        Request r{.op = op, .type = DType::bf16, .count = bytes / 2 / c.ranks() * c.ranks()};
        const double chosen = simulate(c, r).us;
        double best = chosen;
        for (const Algorithm& row : algorithms()) {
          if (row.op != op) continue;
          const std::string name = r.algorithm = row.name;
          if (c.ranks() < 100 || (name != "linear" && name != "pairwise")) best = std::min(best, simulate(c, r).us);
        }
        sum += chosen / best - 1;
        worst = std::max(worst, chosen / best - 1);
        ++count;
      }
    }
    RecordProperty(std::string(name_of(op)) + "_mean_regret", std::to_string(sum / count));
    EXPECT_LT(sum / count, 0.15) << name_of(op) << ", worst " << worst;
    EXPECT_LT(worst, 0.8) << name_of(op) << ", mean " << sum / count;
  }
}

TEST(Sim, EachPublishedPointFromTheOtherFive) {
  const Request nvrar{.op = Op::all_reduce, .algorithm = "nvrar", .type = DType::bf16};
  const std::vector<double> predicted = leave_one_out(*cluster_preset("perlmutter-nvrar"), nvrar, published_nvrar());
  for (size_t i = 0; i < predicted.size(); ++i)
    EXPECT_NEAR(predicted[i] / published_nvrar()[i].us, 1, 0.08) << published_nvrar()[i].bytes;
  // The preset is the fit of all six.
  const Cluster preset = *cluster_preset("perlmutter-nvrar"), fit = fitted(preset, nvrar, published_nvrar());
  EXPECT_NEAR(fit.launch_us / preset.launch_us, 1, 0.02);
  EXPECT_NEAR(fit.network.gb_per_s / preset.network.gb_per_s, 1, 0.02);
}

}  // namespace
}  // namespace braid::comm
