// What ranks have of a model, against lists of rows and columns written out from the heads, groups, channels and
// experts of each; columns of quantised matrices against their values; and what cannot be divided, with the nearest
// that can.
#include "models/division.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "codec/codec.h"
#include "codec/fp8.h"
#include "codec/ggml_encode.h"
#include "codec/nvfp4.h"
#include "models/load_part.h"
#include "support/models.h"

namespace braid::models {
namespace {

using Index = std::vector<int64_t>;

// `count` rows from `first` on for each of `units`.
Index rows_of_units(const Index& units, int64_t count, int64_t first = 0) {
  Index rows;
  for (const int64_t unit : units) {
    for (int64_t i = 0; i < count; ++i) rows.push_back(first + unit * count + i);
  }
  return rows;
}

Index joined(std::initializer_list<Index> lists) {
  Index all;
  for (const Index& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Index units_of_rank(int64_t units, int64_t rank, int64_t ranks) {
  Index own;
  for (int64_t u = 0; u < units; ++u) {
    if (units * rank / ranks <= u && u < units * (rank + 1) / ranks) own.push_back(u);
  }
  return own;
}

Index shared_by(const Index& heads, int64_t each) {
  std::set<int64_t> groups;
  for (const int64_t head : heads) groups.insert(head / each);
  return {groups.begin(), groups.end()};
}

struct Want {
  Index rows{}, cols{};  // none: all
};

// Of the hybrid: 6 heads of 10 channels and 24 states in 2 groups; 4 heads of 12 with 2 keys and values; 44, 20 and 56
// channels; 8 experts.
std::map<std::string, Want> wanted(const Division& d, int64_t rank) {
  const int64_t width = std::max(d.tp, d.ep), place = rank % width, t = place % d.tp;
  const Index heads = units_of_rank(6, t, d.tp), groups = shared_by(heads, 3), q = units_of_rank(4, t, d.tp),
              kv = shared_by(q, 2), mlp = units_of_rank(44, t, d.tp), shared = units_of_rank(56, place, width),
              inside = units_of_rank(20, place % (width / d.ep), width / d.ep);
  const Index channels =
      joined({rows_of_units(heads, 10), rows_of_units(groups, 24, 60), rows_of_units(groups, 24, 108)});
  Index in = rows_of_units(heads, 10);
  for (const int64_t c : channels) in.push_back(60 + c);
  for (const int64_t h : heads) in.push_back(216 + h);
  std::map<std::string, Want> want = {{"0.mixer.in_proj.weight", {in, {}}},
                                      {"0.mixer.conv1d.weight", {channels, {}}},
                                      {"0.mixer.conv1d.bias", {{}, channels}},
                                      {"0.mixer.A_log", {{}, heads}},
                                      {"0.mixer.norm.weight", {{}, rows_of_units(heads, 10)}},
                                      {"0.mixer.out_proj.weight", {{}, rows_of_units(heads, 10)}},
                                      {"1.mixer.gate.weight", {}},
                                      {"1.mixer.shared_experts.up_proj.weight", {shared, {}}},
                                      {"1.mixer.shared_experts.down_proj.weight", {{}, shared}},
                                      {"2.mixer.q_proj.weight", {rows_of_units(q, 12), {}}},
                                      {"2.mixer.k_proj.weight", {rows_of_units(kv, 12), {}}},
                                      {"2.mixer.v_proj.weight", {rows_of_units(kv, 12), {}}},
                                      {"2.mixer.o_proj.weight", {{}, rows_of_units(q, 12)}},
                                      {"3.mixer.up_proj.weight", {mlp, {}}},
                                      {"3.mixer.down_proj.weight", {{}, mlp}},
                                      {"3.norm.weight", {}}};
  for (const int64_t e : units_of_rank(8, place / (width / d.ep), d.ep)) {
    want[fmt::format("1.mixer.experts.{}.up_proj.weight", e)] = {inside, {}};
    want[fmt::format("1.mixer.experts.{}.down_proj.weight", e)] = {{}, inside};
  }
  return want;
}

Index all_of(const Index& some, int64_t count) {
  if (!some.empty()) return some;
  Index all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::map<std::string, Weight> weights_of(Model& model) {
  std::map<std::string, Weight> weights;
  for (const Param* p : model.params()) weights[p->name] = p->value;
  return weights;
}

class Parts : public FolderTest {};

TEST_F(Parts, HaveTheRowsAndColumnsOfTheirHeads) {
  write(hybrid(), tensors_of(hybrid()));
  const auto whole = load();
  const std::map<std::string, Weight> all = weights_of(*whole);
  const std::string layers = "backbone.layers.";
  for (const Division& d :
       std::vector<Division>{{.tp = 2}, {.tp = 4}, {.ep = 4}, {.tp = 4, .ep = 2}, {.tp = 2, .ep = 4}}) {
    for (int64_t rank = 0; rank < d.ranks(); ++rank) {
      const auto part = load_part(io::find_model(folder_.string()), d, rank);
      const std::map<std::string, Weight> own = weights_of(*part);
      const std::map<std::string, Want> want = wanted(d, rank);
      size_t experts = 0;
      for (const auto& [name, w] : own) experts += name.find(".experts.") != std::string::npos;
      EXPECT_EQ(experts, 2 * units_of_rank(8, rank % d.stage_ranks() / (d.stage_ranks() / d.ep), d.ep).size());
      for (const auto& [name, some] : want) {
        ASSERT_TRUE(own.contains(layers + name)) << name;
        const Weight& w = own.at(layers + name);
        const Weight& from = all.at(layers + name);
        const Index rows = all_of(some.rows, from.rows), cols = all_of(some.cols, from.cols);
        ASSERT_EQ(w.rows, std::ssize(rows)) << name << " on " << rank;
        ASSERT_EQ(w.cols, std::ssize(cols)) << name << " on " << rank;
        const std::vector<double> got = decode(w), values = decode(from);
        size_t at = 0;
        for (const int64_t r : rows) {
          for (const int64_t c : cols) ASSERT_EQ(got[at++], values[static_cast<size_t>(r * from.cols + c)]) << name;
        }
      }
    }
  }
}

TEST_F(Parts, OfStagesAreAllLayersOnce) {
  write(hybrid(), tensors_of(hybrid()));
  std::map<std::string, int> count;
  int64_t bytes = 0;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto part = load_part(io::find_model(folder_.string()), {.pp = 3}, rank);
    for (const auto& [name, w] : weights_of(*part)) ++count[name], bytes += w.bytes();
  }
  const auto whole = load();
  int64_t want = 0;
  for (const auto& [name, w] : weights_of(*whole)) {
    EXPECT_EQ(count[name], 1) << name;
    want += w.bytes();
  }
  EXPECT_EQ(bytes, want);
}

// What adds to a sum of parts is on one rank.
TEST_F(Parts, HaveABiasOfOutputsOnce) {
  nlohmann::json config = hybrid();
  config["mlp_bias"] = true;
  config["layers_block_type"] = {"mamba", "mlp", "attention", "mlp"};
  write(config, tensors_of(config));
  const std::string name = "backbone.layers.3.mixer.down_proj.bias";
  const auto whole = load();
  for (int64_t rank = 0; rank < 2; ++rank) {
    const auto part = load_part(io::find_model(folder_.string()), {.tp = 2}, rank);
    std::vector<double> want = decode(weights_of(*whole).at(name));
    if (rank > 0) want.assign(want.size(), 0);
    EXPECT_EQ(decode(weights_of(*part).at(name)), want);
  }
}

TEST(Columns, OfEveryFormatHaveTheirValues) {
  constexpr int64_t kTall = 5, kWide = 128;
  std::vector<float> values(kTall * kWide);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7919) % 257) / 64 - 2;
  WeightStore store;
  std::vector<Weight> weights;
  for (const DType type : {DType::f32, DType::bf16}) {
    const MutView dense = store.make(type, {kTall, kWide});
    for (int64_t i = 0; i < dense.count(); ++i) set_element(dense, i, values[static_cast<size_t>(i)]);
    weights.push_back(dense_weight(dense));
  }
  const MutView fp8 = store.make(DType::f8_e4m3, {kTall, kWide}), codes = store.make(DType::u8, {kTall, kWide / 2}),
                scales = store.make(DType::f8_e4m3, {kTall, kWide / 16}),
                q8 = store.make(DType::u8, {kTall, kWide / 32 * 34});
  for (int64_t r = 0; r < kTall; ++r) {
    const std::span<const float> row(values.data() + r * kWide, kWide);
    encode_fp8_row(row, 0.01f, fp8.as<F8E4M3>(r));
    encode_nvfp4_row(row, nvfp4_global(2), codes.as<uint8_t>(r), scales.as<F8E4M3>(r), ScaleSearch::max);
    encode_ggml(GgmlType::q8_0, row, q8.data + r * q8.dim(1));
  }
  weights.push_back({.rows = kTall, .cols = kWide, .spec = {.format = Format::f8_e4m3}, .codes = fp8, .global = 0.01f});
  weights.push_back({.rows = kTall,
                     .cols = kWide,
                     .spec = {.format = Format::nvfp4, .block = 16},
                     .codes = codes,
                     .scales = scales,
                     .global = nvfp4_global(2)});
  weights.push_back(ggml_weight(GgmlType::q8_0, q8, kWide));
  for (const Weight& w : weights) {
    const std::vector<double> all = decode(w);
    const Weight columns = columns_of(store, w, {{0, 32}, {64, 32}}, {1, 3}),
                 rows = rows_of(store, w, {{3, 2}, {0, 1}}, false);
    const std::vector<double> got = decode(columns), some = decode(rows);
    ASSERT_EQ(columns.rows * columns.cols, 3 * 64);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < 64; ++c)
        EXPECT_EQ(got[static_cast<size_t>(r * 64 + c)],
                  all[static_cast<size_t>((r + 1) * kWide + c + (c < 32 ? 0 : 32))])
            << name_of(w.spec.format);
    }
    const int64_t from[] = {3, 4, 0};
    for (int64_t i = 0; i < 3 * kWide; ++i)
      EXPECT_EQ(some[static_cast<size_t>(i)], all[static_cast<size_t>(from[i / kWide] * kWide + i % kWide)]);
  }
}

TEST(Division, WhatDoesNotFitNamesTheNearest) {
  const Config config = read(hybrid());
  const auto error = [&](const Division& d) { return error_of([&] { check_division(config, d); }); };
  for (const Division& d :
       std::vector<Division>{{.tp = 2}, {.tp = 4}, {.pp = 4}, {.ep = 8}, {.tp = 2, .pp = 2, .ep = 4}})
    EXPECT_EQ(error(d), "");
  EXPECT_EQ(error({.tp = 3}),
            "[--tp] does not divide the model; got 3 for 6 heads of Mamba that share 2 groups; expected for every rank "
            "whole groups of heads, or heads of one, and channels; try --tp 4");
  EXPECT_NE(error({.tp = 5}).find("4 heads of attention"), std::string::npos);
  EXPECT_NE(error({.ep = 9}).find("[--ep] does not divide the model; got 9 for 8 experts"), std::string::npos);
  EXPECT_NE(error({.tp = 2, .ep = 3}).find("a divisor or a multiple of 2"), std::string::npos);
  EXPECT_NE(error({.pp = 5}).find("try --pp 4"), std::string::npos);
}

}  // namespace
}  // namespace braid::models
