#include "train/graph_weights.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/philox.h"
#include "data/content.h"
#include "data/shuffle.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "sys/error.h"
#include "sys/memory.h"
#include "sys/parallel.h"
#include "train/origin.h"
#include "train/weight_hash.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

Reduce reduction(const std::string& name) {
  return name == "mean" ? Reduce::mean : name == "max" ? Reduce::max : name == "min" ? Reduce::min : Reduce::sum;
}

}  // namespace

Reduce aggregate_of(const GraphRecipe& g) {
  const gnn::Kind kind = *gnn::kind_of(g.model);
  const auto one_of = [&](std::initializer_list<const char*> names) {
    if (!g.aggregate.empty() && std::find(names.begin(), names.end(), g.aggregate) == names.end())
      fail("graph.aggregate", {.what = fmt::format("does not go with {}", g.model),
                               .got = g.aggregate,
                               .expected = fmt::format("{}", fmt::join(names, ", "))});
  };
  switch (kind) {
    case gnn::Kind::sage:
    case gnn::Kind::monet:
      if (kind == gnn::Kind::monet) one_of({"mean", "add"});
      if (g.aggregate.empty()) return Reduce::mean;
      break;
    case gnn::Kind::edgeconv:
      one_of({"max", "min"});
      if (g.aggregate.empty()) return Reduce::max;
      break;
    default:
      one_of({"add"});
  }
  return reduction(g.aggregate);
}

gnn::NetworkSpec network_of(const Recipe& recipe, int64_t features, int64_t classes) {
  const GraphRecipe& g = recipe.graph;
  gnn::NetworkSpec spec{.kind = *gnn::kind_of(g.model),
                        .layers = g.layers,
                        .features = features,
                        .hidden = g.hidden,
                        .classes = classes,
                        .heads = g.heads,
                        .kernels = std::max<int64_t>(1, g.kernels),
                        .eps = static_cast<float>(g.eps),
                        .dropout = static_cast<float>(g.dropout),
                        .attention_dropout = static_cast<float>(g.attention_dropout),
                        .aggregate = aggregate_of(g)};
  if (g.task == "graph") spec.readout = reduction(g.readout);
  spec.rewrites = gnn::rewrites_without(g.rewrites_off, "graph.rewrites_off");
  if (spec.kind == gnn::Kind::gat && spec.attention_dropout > 0 && !(spec.rewrites.fuse && spec.rewrites.postpone))
    fail("graph.attention_dropout", {.what = "does not go with weights of edges in memory",
                                     .expected = "fuse and postpone, not in graph.rewrites_off"});
  return spec;
}

namespace {

// Every word that differs from its default and would be ignored.
void refuse_foreign(const Recipe& recipe) {
  for (const auto& [word, value] : changed_words(recipe)) {
    if (is_of_graphs(word)) continue;
    fail(word, {.what = "does not go with objective = \"graph\"",
                .got = value,
                .hint = word == "dropout" ? "graph.dropout" : "leaving it out"});
  }
  const GraphRecipe &g = recipe.graph, plain;
  if (g.readout != plain.readout && g.task != "graph")
    fail("graph.readout", {.what = fmt::format("does not go with graph.task = {}", g.task), .expected = "graph"});
  if (g.held_out != plain.held_out && g.task != "edge")
    fail("graph.held_out", {.what = fmt::format("does not go with graph.task = {}", g.task), .expected = "edge"});
}

}  // namespace

void check_graph(const Recipe& recipe) {
  if (recipe.graph.path.empty())
    fail("recipe", {.what = "has no graph.path", .expected = "a .safetensors file with rowptr, col and x"});
  if (recipe.out.empty()) fail("recipe", {.what = "has no out", .expected = "a folder for checkpoints and logs"});
  if (recipe.accumulate != 1)
    fail("accumulate", {.what = "does not divide a graph, which is one batch",
                        .got = std::to_string(recipe.accumulate),
                        .expected = "1"});
  refuse_foreign(recipe);
  const GraphRecipe& g = recipe.graph;
  if (g.task != "node" && g.sample > 0)
    fail("graph.sample", {.what = fmt::format("does not go with graph.task = {}", g.task), .expected = "node"});
  if (g.tiles && (g.task != "node" || g.sample > 0 || !recipe.parallel.grid.empty()))
    fail("graph.tiles", {.what = "is for steps over a whole graph on one rank", .hint = "leaving it out"});
  if (const bool sums = g.model == "gcn" || g.model == "sage" || g.model == "gin";
      g.tiles && (!sums || g.aggregate == "max" || g.aggregate == "min"))
    fail("graph.tiles", {.what = "is for sums and means",
                         .got = g.aggregate.empty() ? g.model : g.aggregate,
                         .expected = "gcn, gin, or sage with add or mean"});
  if (g.tiles && recipe.dtype != "bf16")
    fail("graph.tiles", {.what = "multiplies features in bf16", .got = "dtype = " + recipe.dtype, .expected = "bf16"});
  if (recipe.batch > 0 && g.sample == 0 && g.task == "node")
    fail("batch", {.what = "goes with graph.sample; without it a batch is the whole graph", .hint = "leaving it out"});
}

graph::GraphData read_for(const Recipe& recipe, int64_t classes) {
  check_graph(recipe);
  const GraphRecipe& g = recipe.graph;
  const graph::Task task = g.task == "edge"    ? graph::Task::edge
                           : g.task == "graph" ? graph::Task::graph
                                               : graph::Task::node;
  graph::GraphData data = graph::read_graph(g.path, task, classes);
  std::vector<float>& weight = data.graph.in.weight;
  if (weight.empty() && data.graph.in.loop.empty()) return data;
  if (g.model == "gcn") {
    if (!weight.empty()) data.notes.push_back(graph::describe_weights(data.graph.in));
  } else {
    weight = data.graph.in.loop = {};
    data.notes.push_back(fmt::format("the weights of the edges do nothing in {}, only in gcn", g.model));
  }
  return data;
}

std::vector<models::MasterTensor> tensors_of(const std::vector<gnn::LayerParam>& params) {
  std::vector<models::MasterTensor> list;
  for (const gnn::LayerParam& p : params) {
    const ParamRole of_others = p.shape.rank == 1 ? ParamRole::bias : ParamRole::none;
    list.push_back({.name = p.name,
                    .role = p.matrix ? ParamRole::graph_map : of_others,
                    .shape = p.shape,
                    .matrix = p.matrix,
                    .transposed = p.transposed});
  }
  return list;
}

std::vector<Param> own_params(models::MasterWeights& masters, const std::vector<gnn::LayerParam>& params) {
  std::vector<Param> own = masters.own(tensors_of(params));
  for (size_t i = 0; i < own.size(); ++i) own[i].shard = params[i].shard;
  return own;
}

GraphWeights::GraphWeights(const Recipe& recipe, const std::vector<gnn::LayerParam>& params)
    : recipe_(recipe), masters_(numerics_of(recipe).products) {
  double count = 0;
  for (const gnn::LayerParam& p : params) count += static_cast<double>(p.shape.count());
  need_memory(recipe, copies_of(recipe) * state_bytes(recipe, count).sum(), 0, sys::memory_available());
  params_ = own_params(masters_, params);
  recipe.graph.init.empty() ? initialise(masters_, params, recipe.seed) : load(recipe.graph.init);
  masters_.round(1);
}

std::vector<Param*> GraphWeights::list() {
  std::vector<Param*> list;
  for (Param& p : params_) list.push_back(&p);
  return list;
}

fs::path GraphWeights::file_in(const fs::path& folder) { return folder / "model.safetensors"; }

std::vector<std::string> GraphWeights::eps_names() const {
  std::vector<std::string> names;
  for (int64_t i = 0; recipe_.graph.model == "gin" && i < recipe_.graph.layers; ++i)
    names.push_back(fmt::format("{}.eps", i));
  return names;
}

namespace {

void check_eps(const std::string& where, const io::StoredTensor& t, double eps) {
  if (t.view.dtype != DType::f32 || t.view.count() != 1)
    fail(where, {.what = fmt::format("{} has another type or shape", t.name),
                 .got = fmt::format("{} {}", name_of(t.view.dtype), to_string(t.view.shape)),
                 .expected = "F32 [1]"});
  const float value = *t.view.as<float>();
  if (value == static_cast<float>(eps)) return;
  fail(where, {.what = fmt::format("{} is another number", t.name),
               .got = fmt::format("{}", value),
               .expected = fmt::format("{}, which every layer has", eps),
               .hint = "graph.eps"});
}

}  // namespace

void GraphWeights::load(const fs::path& path) {
  const io::Safetensors file(path);
  const std::string where = printable(path.string());
  const std::vector<std::string> eps = eps_names();
  const auto& own = masters_.tensors();
  for (const io::StoredTensor& t : file.tensors()) {
    if (std::ranges::find(eps, t.name) != eps.end()) {
      check_eps(where, t, recipe_.graph.eps);
    } else if (gnn::names_param(t.name) && std::ranges::find(own, t.name, &models::MasterTensor::name) == own.end()) {
      fail(where, {.what = fmt::format("{} would be ignored", printable(t.name)),
                   .got = fmt::format("{} {}", name_of(t.view.dtype), to_string(t.view.shape)),
                   .expected = fmt::format("weights of {} with {} layers", recipe_.graph.model, recipe_.graph.layers)});
    }
  }
  for (const models::MasterTensor& t : own) {
    const View view = file.need(t.name);
    if (view.dtype != DType::f32 || view.shape != t.shape)
      fail(where, {.what = fmt::format("{} has another type or shape", t.name),
                   .got = fmt::format("{} {}", name_of(view.dtype), to_string(view.shape)),
                   .expected = fmt::format("F32 {}", to_string(t.shape))});
    models::from_stored(t, {view.data, static_cast<size_t>(view.bytes())}, true, masters_.values());
  }
}

void initialise(models::MasterWeights& masters, const std::vector<gnn::LayerParam>& params, int64_t seed) {
  for (size_t i = 0; i < params.size(); ++i) {
    const models::MasterTensor& t = masters.tensors()[i];
    const RandomKey key{.seed = static_cast<uint64_t>(seed), .stream = static_cast<uint32_t>(i)};
    float* values = masters.values().data() + t.offset;
    for (int64_t at = 0; at < t.count(); ++at) {
      const float u = 2 * uniform(philox(key, static_cast<uint64_t>(at / 4))[static_cast<size_t>(at % 4)]) - 1;
      values[at] = static_cast<float>(params[i].value) + static_cast<float>(params[i].bound) * u;
    }
  }
}

void GraphWeights::write(std::span<const float> values, int64_t features, int64_t classes, const fs::path& folder) {
  fs::create_directories(folder);
  std::vector<io::TensorSpec> specs;
  for (const models::MasterTensor& t : masters_.tensors()) specs.push_back({t.name, DType::f32, t.shape});
  const std::vector<std::string> eps = eps_names();
  const auto own_eps = static_cast<float>(recipe_.graph.eps);
  for (const std::string& name : eps) specs.push_back({name, DType::f32, {1}});
  io::SafetensorsWriter file(file_in(folder), specs);
  std::vector<std::byte> bytes;
  for (const io::TensorSpec& spec : file.order()) {
    if (std::ranges::find(eps, spec.name) != eps.end()) {
      file.write(spec.name, view_of(&own_eps, {1}));
      continue;
    }
    bytes.resize(static_cast<size_t>(spec.bytes()));
    models::to_stored(masters_.tensor(spec.name), values, true, DType::f32, bytes);
    file.write(spec.name, bytes);
  }
  file.finish();
  const GraphRecipe& g = recipe_.graph;
  const nlohmann::ordered_json config = {{"model", g.model},
                                         {"task", g.task},
                                         {"readout", g.readout},
                                         {"layers", g.layers},
                                         {"features", features},
                                         {"hidden", g.hidden},
                                         {"classes", classes},
                                         {"heads", g.heads},
                                         {"kernels", g.kernels},
                                         {"eps", g.eps},
                                         {"aggregate", g.aggregate},
                                         {"dropout", g.dropout},
                                         {"attention_dropout", g.attention_dropout}};
  io::write_text_file(folder / "config.json", config.dump(1) + "\n");
}

std::vector<int32_t> Epochs::batch(int64_t batch, int64_t step) {
  constexpr uint32_t kOrder = 0x6f726465;  // "orde"
  const int64_t batches = (count() + batch - 1) / batch, epoch = step / batches, first = step % batches * batch;
  if (epoch != epoch_) {
    std::vector<std::pair<uint32_t, int32_t>> order;
    order.reserve(items_.size());
    for (const int32_t item : items_) {
      const auto r = philox({seed_, kOrder}, static_cast<uint64_t>(item), static_cast<uint32_t>(epoch));
      order.emplace_back(r[0], item);
    }
    std::sort(order.begin(), order.end());
    std::transform(order.begin(), order.end(), items_.begin(), [](const auto& entry) { return entry.second; });
    epoch_ = epoch;
  }
  return {items_.begin() + first, items_.begin() + std::min(first + batch, count())};
}

Facts::value_type content_of(const graph::GraphData& data, const graph::Csr& edges) {
  uint64_t hash = 0;
  const auto add = [&hash](uint64_t of) { hash = data::mix(hash, of); };
  for (const std::vector<float>* x : {&data.x, &data.x_dst}) add(weight_hash(*x, sys::default_threads()));
  const auto bytes = [](const auto& list) { return data::hash_of(std::as_bytes(std::span(list))); };
  add(bytes(data.y));
  add(bytes(data.train));
  add(bytes(data.begin));
  for (const std::vector<float>* weight : {&edges.weight, &edges.loop})
    if (!weight->empty()) add(weight_hash(*weight, sys::default_threads()));
  return {kContent, fmt::format("\"{:016x}\"", hash)};
}

Tensor features_of(Ctx& ctx, DType products, const std::vector<float>& x, int64_t width,
                   std::span<const int32_t> nodes) {
  const int64_t rows = nodes.empty() ? std::ssize(x) / width : std::ssize(nodes);
  const Tensor t(ctx.arena, products, {rows, width});
  sys::parallel_for(ctx.threads, rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t node = nodes.empty() ? i : nodes[static_cast<size_t>(i)];
      const float* from = &x[static_cast<size_t>(node * width)];
      if (products == DType::bf16) {
        std::transform(from, from + width, t.mut().as<Bf16>(i), &to_bf16);
      } else {
        std::copy_n(from, width, t.mut().as<float>(i));
      }
    }
  });
  return t;
}

void class_loss(Ctx& ctx, Tape* tape, const Tensor& logits, std::span<const int32_t> classes, int64_t count,
                Sums& sums) {
  const int64_t rows = logits.dim(0), width = logits.dim(1);
  const Tensor targets(ctx.arena, DType::i32, {rows}), losses(ctx.arena, DType::f32, {rows}),
      lse(ctx.arena, DType::f32, {rows});
  std::memcpy(targets.mut().data, classes.data(), classes.size_bytes());
  run(ctx, CrossEntropyFwd{.logits = logits.view(), .targets = targets.view(), .loss = losses.mut(), .lse = lse.mut()});
  double loss = 0, right = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t target = classes[static_cast<size_t>(i)];
    if (target < 0) continue;
    loss += static_cast<double>(losses.view().as<float>()[i]);
    const float* row = logits.view().as<float>(i);
    right += std::max_element(row, row + width) - row == target ? 1 : 0;
  }
  sums.add("loss", loss, static_cast<double>(count));
  sums.add("accuracy", right, static_cast<double>(count));
  if (!tape) return;
  const Tensor weights(ctx.arena, DType::f32, {rows}), dlogits(ctx.arena, DType::f32, logits.shape());
  std::fill_n(weights.mut().as<float>(), rows, 1 / static_cast<float>(count));
  run(ctx, CrossEntropyBwd{.dloss = weights.view(),
                           .logits = logits.view(),
                           .targets = targets.view(),
                           .lse = lse.view(),
                           .dlogits = dlogits.mut()});
  tape->add_grad(ctx, logits, dlogits);
}

}  // namespace braid::train
