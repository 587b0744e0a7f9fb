#include "train/nodes.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/philox.h"
#include "graph/sample.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "sys/error.h"
#include "sys/memory.h"
#include "train/origin.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWeights = "model.safetensors";

Reduce reduce_of(const GraphRecipe& g, gnn::Kind kind) {
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
  return g.aggregate == "mean"  ? Reduce::mean
         : g.aggregate == "max" ? Reduce::max
         : g.aggregate == "min" ? Reduce::min
                                : Reduce::sum;
}

gnn::NetworkSpec spec_of(const Recipe& recipe, const graph::GraphData& data) {
  const GraphRecipe& g = recipe.graph;
  const gnn::Kind kind = *gnn::kind_of(g.model);
  return {.kind = kind,
          .layers = g.layers,
          .features = data.features,
          .hidden = g.hidden,
          .classes = data.classes,
          .heads = g.heads,
          .kernels = std::max<int64_t>(1, g.kernels),
          .eps = static_cast<float>(g.eps),
          .dropout = static_cast<float>(g.dropout),
          .aggregate = reduce_of(g, kind)};
}

void check_graph(const Recipe& recipe) {
  if (recipe.graph.path.empty())
    fail("recipe", {.what = "has no graph.path", .expected = "a .safetensors file with rowptr, col, x and y"});
  if (recipe.out.empty()) fail("recipe", {.what = "has no out", .expected = "a folder for checkpoints and logs"});
  if (recipe.accumulate != 1)
    fail("accumulate", {.what = "does not divide a graph, which is one batch",
                        .got = std::to_string(recipe.accumulate),
                        .expected = "1"});
  const auto foreign = [](bool set, const char* word) {
    if (set) fail(word, {.what = "does not go with objective = \"graph\"", .hint = "leaving it out"});
  };
  const GraphRecipe& g = recipe.graph;
  if (g.sample > 0 && (g.model == "gcn" || g.model == "monet"))
    fail("graph.sample",
         {.what = fmt::format("does not go with {}, which needs the degrees of the whole graph", g.model),
          .expected = "sage, gin, gat or edgeconv"});
  foreign(!recipe.init.empty(), "init");
  foreign(recipe.config.has_value(), "config");
  foreign(recipe.lora.rank > 0, "lora.rank");
  foreign(recipe.precision != "none", "precision.recipe");
  foreign(recipe.exact, "exact");
  foreign(!recipe.data.path.empty() || !recipe.data.kind.empty(), "data");
  if (recipe.batch > 0 && g.sample == 0)
    fail("batch", {.what = "goes with graph.sample; without it a batch is the whole graph", .hint = "leaving it out"});
}

int64_t argmax(const float* row, int64_t n) { return std::max_element(row, row + n) - row; }

}  // namespace

std::vector<models::MasterTensor> tensors_of(const std::vector<gnn::LayerParam>& params) {
  std::vector<models::MasterTensor> list;
  for (const gnn::LayerParam& p : params) {
    const bool vector = !p.matrix && p.shape.rank == 1;
    list.push_back({.name = p.name,
                    .role = vector ? ParamRole::bias : ParamRole::none,
                    .shape = p.shape,
                    .matrix = p.matrix,
                    .transposed = p.transposed});
  }
  return list;
}

Nodes::Nodes(const Recipe& recipe)
    : recipe_(recipe),
      data_((check_graph(recipe), graph::read_graph(recipe.graph.path))),
      spec_(spec_of(recipe, data_)),
      block_(gnn::make_block(std::move(data_.graph))),
      masters_(numerics_of(recipe).products),
      draws_{.seed = static_cast<uint64_t>(recipe.seed)} {
  const std::vector<gnn::LayerParam> params = gnn::params_of(spec_);
  double count = 0;
  for (const gnn::LayerParam& p : params) count += static_cast<double>(p.shape.count());
  need_memory(state_bytes(recipe, count).sum(), 0, sys::memory_available());
  params_ = masters_.own(tensors_of(params));
  network_.emplace(spec_, params_);
  recipe.graph.init.empty() ? initialise(params) : load(recipe.graph.init);
  masters_.round(1);
  for (size_t i = 0; i < data_.y.size(); ++i) {
    if (data_.train[i]) train_nodes_.push_back(static_cast<int32_t>(i));
    held_out_ += data_.y[i] >= 0 && !data_.train[i] ? 1 : 0;
  }
}

void Nodes::release_graph() {
  block_ = {};
  data_.x = {};
  data_.y = batch_ = train_nodes_ = {};
  data_.train = {};
}

std::vector<Param*> Nodes::params() {
  std::vector<Param*> list;
  for (Param& p : params_) list.push_back(&p);
  return list;
}

void Nodes::load(const fs::path& path) {
  const io::Safetensors file(path);
  for (const models::MasterTensor& t : masters_.tensors()) {
    const View view = file.need(t.name);
    if (view.dtype != DType::f32 || view.shape != t.shape)
      fail(printable(path.string()), {.what = fmt::format("{} has another type or shape", t.name),
                                      .got = fmt::format("{} {}", name_of(view.dtype), to_string(view.shape)),
                                      .expected = fmt::format("F32 {}", to_string(t.shape))});
    models::from_stored(t, {view.data, static_cast<size_t>(view.bytes())}, true, masters_.values());
  }
}

void Nodes::initialise(const std::vector<gnn::LayerParam>& params) {
  for (size_t i = 0; i < params.size(); ++i) {
    const models::MasterTensor& t = masters_.tensors()[i];
    const RandomKey key{.seed = draws_.seed, .stream = static_cast<uint32_t>(i)};
    float* values = masters_.values().data() + t.offset;
    for (int64_t at = 0; at < t.count(); ++at) {
      const float u = 2 * uniform(philox(key, static_cast<uint64_t>(at / 4))[static_cast<size_t>(at % 4)]) - 1;
      values[at] = static_cast<float>(params[i].value) + static_cast<float>(params[i].bound) * u;
    }
  }
}

int64_t Nodes::draw(int64_t step, bool held_out) {
  held_out_batch_ = held_out;
  if (!held_out) draws_.step = static_cast<uint64_t>(step);
  if (!held_out && recipe_.graph.sample > 0) {
    draw_sample(step);
    return 1;
  }
  targets_ = held_out ? held_out_ : std::ssize(train_nodes_);
  batch_ = data_.y;
  for (size_t i = 0; i < batch_.size(); ++i) {
    if ((data_.train[i] == 1) == held_out) batch_[i] = -1;
  }
  return 1;
}

// Batch `step` of the nodes to train on: each epoch has its own order, by random numbers of its own.
void Nodes::draw_sample(int64_t step) {
  constexpr int64_t kBatch = 512;
  constexpr uint32_t kOrder = 0x6f726465;  // "orde"
  const int64_t nodes = std::ssize(train_nodes_), batch = std::min(recipe_.batch > 0 ? recipe_.batch : kBatch, nodes);
  const int64_t batches = (nodes + batch - 1) / batch, epoch = step / batches, first = step % batches * batch;
  std::vector<std::pair<uint32_t, int32_t>> order;
  order.reserve(train_nodes_.size());
  for (const int32_t node : train_nodes_) {
    const auto r = philox({draws_.seed, kOrder}, static_cast<uint64_t>(node), static_cast<uint32_t>(epoch));
    order.emplace_back(r[0], node);
  }
  std::sort(order.begin(), order.end());
  std::vector<int32_t> seeds;
  batch_.clear();
  for (int64_t i = first; i < std::min(first + batch, nodes); ++i) {
    seeds.push_back(order[static_cast<size_t>(i)].second);
    batch_.push_back(data_.y[static_cast<size_t>(seeds.back())]);
  }
  targets_ = std::ssize(seeds);
  graph::Sample sample = graph::sample_neighbours(block_.graph.in, seeds, spec_.layers, recipe_.graph.sample,
                                                  {.seed = draws_.seed, .step = static_cast<uint64_t>(step)});
  sampled_.clear();
  for (graph::Graph& g : sample.blocks) sampled_.push_back(gnn::make_sampled_block(std::move(g)));
  sampled_nodes_ = std::move(sample.nodes);
}

Tensor Nodes::forward(Ctx& ctx, const Part& part, bool draws) {
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = part.blocks.front()->senders, .state = none, .numerics = numerics_of(recipe_)};
  if (draws) run.draws = &draws_;
  const int64_t width = data_.features, rows = part.blocks.front()->cols();
  const Tensor x(ctx.arena, masters_.products(), {rows, width});
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t node = part.nodes.empty() ? i : part.nodes[static_cast<size_t>(i)];
    const float* from = &data_.x[static_cast<size_t>(node * width)];
    if (x.dtype() == DType::bf16) {
      std::transform(from, from + width, x.mut().as<Bf16>(i), &to_bf16);
    } else {
      std::copy_n(from, width, x.mut().as<float>(i));
    }
  }
  return network_->forward(run, part.blocks, x);
}

void Nodes::run(Ctx& ctx, int64_t, int64_t, bool backward, Sums& sums) {
  ctx.tape = backward ? &tape_ : nullptr;
  Part part = whole_graph();
  if (!held_out_batch_ && recipe_.graph.sample > 0) {
    part.blocks.clear();
    for (const gnn::Block& block : sampled_) part.blocks.push_back(&block);
    part.nodes = sampled_nodes_;
  }
  const int64_t nodes = part.blocks.back()->rows();
  {
    const Tensor logits = forward(ctx, part, backward), targets(ctx.arena, DType::i32, {nodes}),
                 losses(ctx.arena, DType::f32, {nodes}), lse(ctx.arena, DType::f32, {nodes});
    std::memcpy(targets.mut().data, batch_.data(), batch_.size() * sizeof(int32_t));
    braid::run(ctx, CrossEntropyFwd{
                        .logits = logits.view(), .targets = targets.view(), .loss = losses.mut(), .lse = lse.mut()});
    double loss = 0, right = 0;
    for (int64_t i = 0; i < nodes; ++i) {
      const int64_t target = batch_[static_cast<size_t>(i)];
      if (target < 0) continue;
      loss += static_cast<double>(losses.view().as<float>()[i]);
      right += argmax(logits.view().as<float>(i), data_.classes) == target ? 1 : 0;
    }
    const auto put = [&](const char* name, double sum) {
      Sums::Sum& to = sums[name];
      to.sum += sum;
      to.count += static_cast<double>(targets_);
    };
    put("loss", loss);
    put("accuracy", right);
    if (backward) {
      const Tensor weights(ctx.arena, DType::f32, {nodes}), dlogits(ctx.arena, DType::f32, logits.shape());
      std::fill_n(weights.mut().as<float>(), nodes, 1 / static_cast<float>(targets_));
      braid::run(ctx, CrossEntropyBwd{.dloss = weights.view(),
                                      .logits = logits.view(),
                                      .targets = targets.view(),
                                      .lse = lse.view(),
                                      .dlogits = dlogits.mut()});
      tape_.add_grad(ctx, logits, dlogits);
    }
  }
  if (backward) tape_.backward(ctx);
  tape_.clear();
  ctx.tape = nullptr;
}

std::vector<float> Nodes::logits(Ctx& ctx) {
  const Tensor y = forward(ctx, whole_graph(), false);
  const auto* values = y.view().as<float>();
  return {values, values + y.view().count()};
}

void Nodes::write(std::span<const float> values, const fs::path& folder) {
  fs::create_directories(folder);
  std::vector<io::TensorSpec> specs;
  for (const models::MasterTensor& t : masters_.tensors()) specs.push_back({t.name, DType::f32, t.shape});
  io::SafetensorsWriter file(weights_in(folder), specs);
  std::vector<std::byte> bytes;
  for (const io::TensorSpec& spec : file.order()) {
    bytes.resize(static_cast<size_t>(spec.bytes()));
    models::to_stored(masters_.tensor(spec.name), values, true, DType::f32, bytes);
    file.write(spec.name, bytes);
  }
  file.finish();
  const GraphRecipe& g = recipe_.graph;
  const nlohmann::ordered_json config = {
      {"model", g.model},         {"layers", g.layers},  {"features", data_.features}, {"hidden", g.hidden},
      {"classes", data_.classes}, {"heads", g.heads},    {"kernels", g.kernels},       {"eps", g.eps},
      {"aggregate", g.aggregate}, {"dropout", g.dropout}};
  io::write_text_file(folder / "config.json", config.dump(1) + "\n");
}

fs::path Nodes::weights_in(const fs::path& folder) const { return folder / kWeights; }

void Nodes::write_batch(const fs::path& path) const {
  const int64_t nodes = std::ssize(batch_);
  io::SafetensorsWriter file(path, {{"targets", DType::i32, {nodes}}});
  file.write("targets", view_of(batch_.data(), {nodes}));
  file.finish();
}

Facts Nodes::facts() const {
  return {{"graph", fmt::format("\"{:016x}\"", graph::fingerprint(block_.graph.in))},
          {"features", std::to_string(data_.features)},
          {"classes", std::to_string(data_.classes)}};
}

std::vector<std::string> Nodes::describe() const {
  std::vector<std::string> lines = {
      graph::describe(stats()),
      fmt::format("{} with {} layers, {} parameters; {} classes, {} nodes to train on, {} held out",
                  recipe_.graph.model, spec_.layers, masters_.trained(), data_.classes, train_nodes_.size(),
                  held_out_)};
  lines.insert(lines.end(), data_.notes.begin(), data_.notes.end());
  return lines;
}

}  // namespace braid::train
