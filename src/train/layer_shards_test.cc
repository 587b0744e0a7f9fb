// Ranks that divide gradients and weights layer by layer: sums and weights, bytes sent, and memory in use.
#include "train/layer_shards.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>

#include "comm/inproc.h"
#include "comm/selector.h"
#include "support/error_of.h"
#include "train/mesh.h"

namespace braid::train {
namespace {

constexpr int64_t kCols = 64;

// A table, `layers` layers of a matrix and a vector, and a norm behind them; sizes in rows.
struct LayerSizes {
  int64_t table = 32, layer = 32, layers = 3, vector = 1;
};

// Norms are `partial` where ranks share blocks.
std::vector<models::MasterTensor> layered(const LayerSizes& sizes, bool shared) {
  std::vector<models::MasterTensor> list;
  const auto add = [&](ParamRole role, int64_t rows, int layer) {
    list.push_back({.name = "t" + std::to_string(list.size()),
                    .role = role,
                    .shape = {rows, kCols},
                    .matrix = is_matrix(role),
                    .partial = shared && role == ParamRole::norm,
                    .layer = layer});
  };
  add(ParamRole::embedding, sizes.table, -1);
  for (int layer = 0; layer < sizes.layers; ++layer) {
    add(ParamRole::up, sizes.layer, layer);
    add(ParamRole::norm, sizes.vector, layer);
  }
  add(ParamRole::norm, sizes.vector, -1);
  return list;
}

float weight(int64_t i) { return static_cast<float>(i % 251) + 0.5f; }
float gradient(int rank, int64_t i, int part) { return static_cast<float>(i % 13 + 2 * rank + 5 * part); }

struct Seen {
  int64_t sent = 0, bytes_before = 0, bytes_in_passes = 0, bytes_after = 0;
  std::vector<Range> own{};
  std::vector<float> grads{};
  bool weights_there = true, others_gone = true;
};

struct ShardCase {
  int ranks = 2;
  int64_t zero = 3, parts = 1;
  LayerSizes sizes{};
  DType products = DType::f32;
  bool muon = false;
  int tp = 1;
  bool looks = true;  // at all weights: pages that are read count as memory
  bool overlap = false;
  std::string times{};  // of collectives
  bool rough = false;   // gradients whose sums depend on the order of additions
};

float rough_gradient(int rank, int64_t i, int part) {
  uint64_t hash = static_cast<uint64_t>(i * 64 + rank * 8 + part) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 29;
  return std::ldexp(static_cast<float>(hash % 0xffffff) / 0xffffff - 0.5f, static_cast<int>(hash >> 40 & 15));
}

class Passes {
 public:
  Passes(const ShardCase& c, comm::Group& world, Seen& out)
      : case_(c), world_(world), mesh_(recipe_of(c), world), masters_(c.products, mesh_.parted()), out_(out) {
    masters_.own(layered(c.sizes, c.tp > 1));
    for (int64_t i = 0; i < masters_.size(); ++i) masters_.values()[static_cast<size_t>(i)] = weight(i);
    masters_.round(1);
    mesh_.divide(masters_, 1);
  }

  void step() {
    out_.bytes_before = masters_.parted_bytes();
    const int64_t before = mesh_.bytes_sent();
    masters_.zero_grads(1);
    mesh_.begin_passes();
    for (int part = 0; part < case_.parts; ++part) pass(part);
    mesh_.end_passes();
    Sums none;
    mesh_.end_gradients(masters_, none, 1);
    mesh_.gather_weights(masters_, 1);
    out_.sent = mesh_.bytes_sent() - before;
    out_.bytes_after = masters_.parted_bytes();
    out_.own = mesh_.own(masters_);
    out_.grads.assign(masters_.grads().begin(), masters_.grads().end());
  }

 private:
  static Recipe recipe_of(const ShardCase& c) {
    Recipe recipe;
    recipe.parallel.zero = c.zero;
    recipe.parallel.tp = c.tp;
    recipe.parallel.overlap = c.overlap;
    recipe.accumulate = c.parts;
    if (c.muon) recipe.optimizer.kind = "muon";
    return recipe;
  }

  void pass(int part) {
    nn::LayerPasses* layers = mesh_.layers();
    for (int layer = 0; layer < case_.sizes.layers; ++layer) {
      if (layers) layers->begin(layer, false);
      see(layer);
      if (layers) layers->end(layer, false);
    }
    add(-1, part);
    for (int layer = static_cast<int>(case_.sizes.layers) - 1; layer >= 0; --layer) {
      if (layers) layers->begin(layer, true);
      see(layer);
      add(layer, part);
      out_.bytes_in_passes = std::max(out_.bytes_in_passes, masters_.parted_bytes());
      if (layers) layers->end(layer, true);
    }
  }

  // The weights of the layer, and no others beside this rank's own and those of no layer.
  void see(int layer) {
    if (!case_.looks) return;
    const std::vector<Range> own = mesh_.own(masters_);
    const auto is_own = [&](int64_t i) {
      return std::any_of(own.begin(), own.end(), [i](const Range& r) { return i >= r.begin && i < r.begin + r.count; });
    };
    for (const models::MasterTensor& t : masters_.tensors()) {
      for (int64_t i = t.offset; i < t.offset + t.count(); ++i) {
        const float value = masters_.values()[static_cast<size_t>(i)];
        const bool there = value == weight(i);
        const bool rounded = case_.products != DType::bf16 || !t.matrix ||
                             to_float(masters_.rounded()[static_cast<size_t>(i)]) == to_float(to_bf16(weight(i)));
        if (t.layer < 0 || t.layer == layer) out_.weights_there = out_.weights_there && there && rounded;
        if (t.layer >= 0 && t.layer != layer && case_.zero == 3)
          out_.others_gone = out_.others_gone && (is_own(i) == there);
      }
    }
  }

  void add(int layer, int part) {
    for (const models::MasterTensor& t : masters_.tensors()) {
      for (int64_t i = t.offset; t.layer == layer && i < t.offset + t.count(); ++i)
        masters_.grads()[static_cast<size_t>(i)] +=
            case_.rough ? rough_gradient(world_.rank(), i, part) : gradient(world_.rank(), i, part);
    }
  }

  ShardCase case_;
  comm::Group& world_;
  Mesh mesh_;
  models::MasterWeights masters_;
  Seen& out_;
};

std::vector<Seen> step_of(const ShardCase& c) {
  std::vector<Seen> outcomes(static_cast<size_t>(c.ranks));
  comm::run_in_process(c.ranks, {.per_node = c.ranks}, [&](comm::Group& world) {
    if (!c.times.empty()) world.choose_by("times.csv", c.times);
    Passes(c, world, outcomes[static_cast<size_t>(world.rank())]).step();
  });
  return outcomes;
}

TEST(LayerShards, SumsOfAllRanksAndPartsReachTheirOwner) {
  for (const int64_t zero : {2, 3}) {
    for (const int ranks : {2, 3, 5}) {
      for (const bool muon : {false, true}) {
        const ShardCase c{.ranks = ranks, .zero = zero, .parts = 3, .muon = muon};
        int64_t covered = 0;
        std::vector<int> owners;
        for (const Seen& o : step_of(c)) {
          EXPECT_TRUE(o.weights_there);
          EXPECT_TRUE(o.others_gone);
          owners.resize(o.grads.size());
          for (const Range& own : o.own) {
            covered += own.count;
            for (int64_t i = own.begin; i < own.begin + own.count; ++i) {
              float sum = 0;
              for (int part = 0; part < 3; ++part)
                for (int rank = 0; rank < ranks; ++rank) sum += gradient(rank, i, part);
              ASSERT_EQ(o.grads[static_cast<size_t>(i)], sum) << i;
              ++owners[static_cast<size_t>(i)];
            }
          }
        }
        EXPECT_EQ(covered, std::ssize(owners));
        EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), std::ssize(owners));
      }
    }
  }
}

// Ranks 0 and 2, and 1 and 3, have the same parts of blocks; all have the norms.
TEST(LayerShards, WhatRanksOfAModelShareIsSummedOverThemToo) {
  const std::vector<models::MasterTensor> all = layered({}, true);
  for (const int64_t zero : {2, 3}) {
    const std::vector<Seen> outcomes = step_of({.ranks = 4, .zero = zero, .parts = 2, .tp = 2});
    for (int rank = 0; rank < 4; ++rank) {
      const Seen& o = outcomes[static_cast<size_t>(rank)];
      int64_t at = 0;
      for (const models::MasterTensor& t : all) {
        for (int64_t i = at; i < at + t.count(); ++i) {
          const bool own = std::any_of(o.own.begin(), o.own.end(),
                                       [i](const Range& r) { return i >= r.begin && i < r.begin + r.count; });
          float sum = 0;
          for (int other = 0; other < 4; ++other) {
            if (t.partial || other % 2 == rank % 2) sum += gradient(other, i, 0) + gradient(other, i, 1);
          }
          if (own) {
            ASSERT_EQ(o.grads[static_cast<size_t>(i)], sum) << i << " of " << rank;
          }
        }
        at += t.count();
      }
    }
  }
}

TEST(LayerShards, LayersAreRoundedWhereTheyAreGathered) {
  const ShardCase c{.ranks = 2, .products = DType::bf16};
  for (const Seen& o : step_of(c)) EXPECT_TRUE(o.weights_there && o.others_gone);
}

// Stage 2: gradients of layers once a part, the rest of them and all weights once a step. Stage 3: weights of a layer
// twice a part. n (P - 1) / P each, of FP32.
TEST(LayerShards, BytesOfAStepAreThoseOfTheFormula) {
  const LayerSizes sizes{.table = 8192, .layer = 8192 - 32, .layers = 2, .vector = 32};
  const int64_t layers = sizes.layers * 8192 * kCols * 4, rest = (8192 + 32) * kCols * 4;
  for (const int ranks : {2, 4}) {
    for (const int64_t parts : {1, 2}) {
      const auto sent = [&](int64_t zero) {
        return step_of({.ranks = ranks, .zero = zero, .parts = parts, .sizes = sizes, .looks = false});
      };
      constexpr int64_t kNames = 8;  // of the sums that a rank has, to each other one
      const auto all_but_own = [&](int64_t bytes) { return bytes * (ranks - 1) / ranks + kNames * (ranks - 1); };
      for (const Seen& o : sent(2)) EXPECT_EQ(o.sent, all_but_own(parts * layers + rest + layers + rest));
      for (const Seen& o : sent(3)) EXPECT_EQ(o.sent, all_but_own(parts * 3 * layers + 2 * rest));
    }
  }
}

// Of each array a rank has its part and, in a pass, what no layer has and one layer.
TEST(LayerShards, MemoryInUseIsThatOfTheFormula) {
  const LayerSizes sizes{.table = 1024, .layer = 2048, .layers = 4, .vector = 32};
  const int64_t layer = (2048 + 32) * kCols, rest = (1024 + 32) * kCols, all = 4 * layer + rest;
  const int64_t slack = 4096 * 2 * 2 * (sizes.layers + 2);  // pages that two parts share, of two arrays
  for (const int ranks : {2, 4, 8}) {
    const int64_t own = all / ranks, in_pass = own + (rest + layer) * (ranks - 1) / ranks;
    for (const Seen& o : step_of({.ranks = ranks, .sizes = sizes, .looks = false})) {
      EXPECT_LE(std::abs(o.bytes_before - 4 * own), slack);
      EXPECT_LE(std::abs(o.bytes_in_passes - 4 * (in_pass + in_pass)), slack);
      EXPECT_LE(std::abs(o.bytes_after - 4 * (own + own)), slack);
      EXPECT_LT(o.bytes_in_passes, 4 * all * 2 - slack);
    }
    for (const Seen& o : step_of({.ranks = ranks, .zero = 2, .sizes = sizes, .looks = false})) {
      EXPECT_LE(std::abs(o.bytes_in_passes - 4 * in_pass), slack);
      EXPECT_LE(std::abs(o.bytes_after - 4 * own), slack);
    }
  }
}

std::string only(const char* op, const char* name, int ranks) {
  return fmt::format("{}\n{},1,{},1024,{},1\n", comm::kTimesHeader, op, ranks, name);
}

// Whatever the algorithm, wherever layers meet the ranks' parts.
TEST(Overlap, SumsHaveTheBitsOfThoseAtTheEnd) {
  for (const int ranks : {3, 5}) {
    for (const int64_t zero : {0, 1, 2}) {
      std::vector<std::string> tables = {""};
      for (const std::string& name :
           comm::algorithm_names(zero == 0 ? comm::Op::all_reduce : comm::Op::reduce_scatter)) {
        const bool one_order = name == "linear" || name == "binomial" || name == "recursive" || name == "rabenseifner";
        if (!name.starts_with("native") && (zero > 0 || one_order))
          tables.push_back(only(zero == 0 ? "all_reduce" : "reduce_scatter", name.c_str(), ranks));
      }
      for (const std::string& times : tables) {
        ShardCase c{.ranks = ranks, .zero = zero, .parts = 2, .sizes = {.table = 600, .layer = 500, .layers = 3}};
        c.looks = false, c.rough = true, c.times = times;
        const std::vector<Seen> at_end = step_of(c);
        c.overlap = true;
        const std::vector<Seen> meanwhile = step_of(c);
        for (size_t rank = 0; rank < at_end.size(); ++rank) {
          for (const Range& own : at_end[rank].own) {
            for (int64_t i = own.begin; i < own.begin + own.count; ++i) {
              ASSERT_EQ(std::bit_cast<uint32_t>(at_end[rank].grads[static_cast<size_t>(i)]),
                        std::bit_cast<uint32_t>(meanwhile[rank].grads[static_cast<size_t>(i)]))
                  << i << " of rank " << rank << " of " << ranks << ", zero " << zero << "\n"
                  << times;
            }
          }
          EXPECT_EQ(at_end[rank].sent > 0, meanwhile[rank].sent > 0);
        }
      }
    }
  }
}

TEST(Overlap, RefusesAlgorithmsWhoseOrderDependsOnTheLength) {
  ShardCase c{.ranks = 3, .zero = 0, .overlap = true, .times = only("all_reduce", "ring", 3)};
  const std::string error = support::error_of([&] { step_of(c); });
  EXPECT_NE(error.find("[parallel.overlap] sums layer by layer"), std::string::npos) << error;
  EXPECT_NE(error.find("got ring"), std::string::npos) << error;
}

// At the end of the pass of a layer the gradients of the one above have been taken: no more than two are whole.
TEST(Overlap, StageTwoHasTheGradientsOfTwoLayers) {
  const LayerSizes sizes{.table = 1024, .layer = 2048, .layers = 6, .vector = 32};
  const int64_t layer = (2048 + 32) * kCols, rest = (1024 + 32) * kCols, all = 6 * layer + rest;
  const int64_t slack = 4096 * 2 * 2 * (sizes.layers + 2);
  for (const Seen& o : step_of({.ranks = 4, .zero = 2, .sizes = sizes, .looks = false, .overlap = true})) {
    EXPECT_LE(o.bytes_in_passes, 4 * (all / 4 + (rest + 2 * layer) * 3 / 4) + slack);
    EXPECT_LE(std::abs(o.bytes_after - all), slack);
  }
}

}  // namespace
}  // namespace braid::train
