// For tests of nested models: a small one, runs of it, its slices, and what differs between two folders.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "models/load.h"
#include "prune/nest.h"
#include "prune/write.h"
#include "support/data.h"
#include "train/language.h"
#include "train/trainer.h"

namespace braid::train {

inline const data::DataSpec kNestChain{
    .kind = "markov", .batch = 2, .length = 24, .seed = 1, .generator = {.states = 16}};

// A hybrid with a prediction block, which is nested as it lies: with models of half of every axis, or (0.6) of experts
// and layers alone, whose norms read all that they did.
inline io::ModelPath nested_hybrid(const std::filesystem::path& out) {
  std::filesystem::copy(support::data("hf/nemotron-h-latent-mtp"), out);
  const io::ModelPath path = io::find_model(out.string());
  const models::Config config = models::load_config(path);
  const prune::Layouts layouts(config, models::open_folder(path).source.get());
  nlohmann::json half = {{"name", "half"}, {"share", 0.5}, {"skipped_layers", {1}}},
                 some = {{"name", "0.6"}, {"share", 0.6}, {"skipped_layers", {1}}};
  for (const prune::AxisRange& r : prune::axes_of(config, {.width = 0.5, .depth = 0.5})) {
    if (!r.why.empty()) continue;
    const bool narrow = r.axis == prune::Axis::experts || r.axis == prune::Axis::shared_ffn;
    half["sizes"][name_of(r.axis)] = r.least;
    if (narrow) some["sizes"][name_of(r.axis)] = r.least;
    if (r.axis == prune::Axis::layers) half["sizes"]["layers"] = some["sizes"]["layers"] = r.full - 1;
  }
  for (const std::string& name : layouts.names()) {
    const prune::Layout& l = layouts.of(name);
    if (l.spec.role != ParamRole::norm && l.spec.role != ParamRole::gated_norm) continue;
    const std::vector<double> scales(static_cast<size_t>(norm_groups(config, l)), 1.5);
    half["norm_scale"][name] = scales;
  }
  const nlohmann::json whole = {{"name", "1"}, {"share", 1}, {"sizes", nlohmann::json::object()}};
  std::vector<int64_t> order = prune::in_place(std::ssize(config.layers));
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());  // layer 1 goes first
  nlohmann::json energy = nlohmann::json::object();                // of norms, which rise over their channels
  for (const auto& [name, scales] : half["norm_scale"].items()) {
    for (int64_t i = 0; i < layouts.of(name).spec.cols(); ++i)
      energy[name].push_back(0.5 + 0.01 * static_cast<double>(i % 40));
  }
  io::write_text_file(
      out / prune::kNestedFile,
      nlohmann::json{{"budgets", {whole, some, half}}, {"layer_order", order}, {"norm_energy", energy}}.dump());
  return path;
}

inline Recipe nest_recipe(const std::filesystem::path& init, const std::filesystem::path& out) {
  Recipe r;
  r.init = init.string();
  r.out = out.string();
  r.dtype = "f32";
  r.steps = 6;
  r.batch = 2;
  r.length = 24;
  r.data = kNestChain;
  r.optimizer = {.lr = 1e-3, .weight_decay = 0, .clip = 0};
  r.checkpoint.every = 3;
  return r;
}

// The checkpoint at the end.
inline std::filesystem::path train_nest(const Recipe& recipe, const std::filesystem::path& from = {},
                                        const Watcher& watcher = {}) {
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  Language language(recipe, ctx);
  Trainer trainer(recipe, language, ctx);
  if (!from.empty()) trainer.resume(from);
  EXPECT_EQ(trainer.train(watcher), Outcome::finished);
  return list_checkpoints(recipe.out).back();
}

inline std::filesystem::path nest_slice(const std::filesystem::path& nested, const std::string& budget,
                                        const std::filesystem::path& out) {
  const io::ModelPath path{.name = nested.string(), .folder = nested, .weights = nested};
  EXPECT_TRUE(prune::slice_model(path, budget, out, [](const char*, int64_t, int64_t) { return true; }).whole);
  return out;
}

// The names of tensors whose values differ.
inline std::vector<std::string> different_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const io::Safetensors one(a), other(b);
  std::vector<std::string> names;
  for (const io::StoredTensor& t : one.tensors()) {
    const View v = other.need(t.name);
    if (v.shape != t.view.shape || v.dtype != t.view.dtype ||
        std::memcmp(v.data, t.view.data, static_cast<size_t>(v.bytes())) != 0)
      names.push_back(t.name);
  }
  EXPECT_EQ(one.tensors().size(), other.tensors().size());
  return names;
}

}  // namespace braid::train
