#include "train/grid_nodes.h"

#include <algorithm>
#include <utility>

#include "graph/grid_cut.h"
#include "io/safetensors_write.h"
#include "sys/check.h"
#include "train/grid_loss.h"

namespace braid::train {

namespace {

gnn::GridShape shape_of(const Recipe& recipe) {
  const auto sizes = graph_grid(recipe.parallel.grid);
  CHECK(sizes.has_value(), "grid {} of a graph", recipe.parallel.grid);
  const auto [x, y, z] = *sizes;
  return {.x = x, .y = y, .z = z};
}

std::vector<int32_t> order_of(const Recipe& recipe, const Nodes& whole) {
  return graph::random_order(whole.edges().rows, static_cast<uint64_t>(recipe.seed));
}

}  // namespace

GridBalance balance_of(const Recipe& recipe, const Nodes& whole) {
  GridBalance balance{.shape = shape_of(recipe)};
  gnn::check_grid(whole.spec(), whole.edges().rows, balance.shape);
  const std::vector<int32_t> positions = graph::positions_of(order_of(recipe, whole));
  for (int64_t role = 0; role < std::min<int64_t>(3, whole.spec().layers); ++role) {
    const gnn::GridRoles<int64_t> r = gnn::roles_of(balance.shape, role);
    balance.in_order.push_back(graph::imbalance(whole.edges(), {}, r.depth, r.outer));
    balance.permuted.push_back(graph::imbalance(whole.edges(), positions, r.depth, r.outer));
  }
  return balance;
}

std::vector<std::string> GridBalance::describe() const {
  const auto line = [](const char* what, const std::vector<double>& values) {
    std::string text;
    for (const double value : values) text += fmt::format("{}{:.3f}", text.empty() ? "" : ", ", value);
    return fmt::format("edges of the fullest block over the mean, {}, by layer: {}", what, text);
  };
  const auto [x, y, z] = shape;
  return {fmt::format("grid {} x {} x {}", x, y, z), line("in the file's order", in_order), line("permuted", permuted)};
}

// A machine has memory for the whole graph once: its ranks take turns.
GridNodes::GridNodes(const Recipe& recipe, comm::Group& world)
    : recipe_(recipe),
      ranks_(world, shape_of(recipe)),
      masters_(numerics_of(recipe).products),
      draws_{.seed = static_cast<uint64_t>(recipe.seed)} {
  const int turns = world.per_node() > 0 ? world.per_node() : world.size();
  for (int turn = 0; turn < turns; ++turn) {
    if (world.rank() % turns == turn) read();
    world.barrier().wait();
  }
}

void GridNodes::read() {
  whole_.emplace(recipe_);
  facts_ = whole_->facts();
  lines_ = whole_->describe();
  for (std::string& line : balance_of(recipe_, *whole_).describe()) lines_.push_back(std::move(line));
  own_parts();
  network_.emplace(whole_->spec(), whole_->data().nodes(), ranks_, params_);
  take_graph();
}

namespace {

// What a rank has of a weight or a bias.
void take_part(models::MasterTensor& t, bool matrix, const gnn::LayerSpec& layer, const gnn::GridRanks::Roles& roles) {
  const gnn::WeightPart part = gnn::weight_part(layer, roles);
  if (matrix) {
    if (part.own.count == layer.out && part.cols.count == layer.in) return;
    t.rows = layer.out;
    t.cols = layer.in;
    t.held = {part.own};
    t.within = part.cols;
    return;
  }
  t.counted = roles.inner.rank() == 0 && roles.depth.rank() == 0;
  if (part.block.count == layer.out) return;
  t.rows = 1;
  t.cols = layer.out;
  t.by_cols = true;
  t.held = {part.block};
}

}  // namespace

// The first weights are those of one rank.
void GridNodes::own_parts() {
  const std::vector<gnn::LayerSpec> layers = gnn::layers_of(whole_->spec());
  const std::vector<gnn::LayerParam> params = gnn::params_of(whole_->spec());
  std::vector<models::MasterTensor> tensors = tensors_of(params);
  size_t next = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const gnn::GridRanks::Roles roles = ranks_.roles(static_cast<int64_t>(i));
    for (const gnn::LayerParam& param : gnn::params_of(layers[i]))
      take_part(tensors[next++], param.matrix, layers[i], roles);
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].number = static_cast<int64_t>(i);
  params_ = masters_.own(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    params_[i].shard = params[i].shard;
    const auto from = static_cast<size_t>(whole_->masters().tensors()[i].offset),
               to = static_cast<size_t>(masters_.tensors()[i].offset);
    models::take_held(masters_.tensors()[i], whole_->masters().values().subspan(from), masters_.values().subspan(to));
  }
  masters_.round(1);
}

void GridNodes::take_graph() {
  const graph::Csr& edges = whole_->edges();
  const std::vector<int32_t> order = order_of(recipe_, *whole_);
  network_->cut(edges, order);
  const gnn::GridNetwork::Part in = network_->input(), out = network_->output();
  const int64_t width = whole_->data().features;
  x_.reserve(static_cast<size_t>(in.nodes.count * in.channels.count));
  for (int64_t i = in.nodes.begin; i < in.nodes.begin + in.nodes.count; ++i) {
    const auto row = whole_->data().x.begin() + order[static_cast<size_t>(i)] * width + in.channels.begin;
    x_.insert(x_.end(), row, row + in.channels.count);
  }
  nodes_.assign(order.begin() + out.nodes.begin, order.begin() + out.nodes.begin + out.nodes.count);
  const graph::GraphData& data = whole_->data();
  for (const int32_t node : nodes_) {
    y_.push_back(data.y[static_cast<size_t>(node)]);
    train_.push_back(data.train[static_cast<size_t>(node)]);
  }
  for (size_t node = 0; node < data.y.size(); ++node) {
    trained_ += data.train[node];
    held_out_ += data.y[node] >= 0 && data.train[node] == 0 ? 1 : 0;
  }
  whole_->release_graph();
}

std::vector<Param*> GridNodes::params() {
  std::vector<Param*> list;
  for (Param& p : params_) list.push_back(&p);
  return list;
}

int64_t GridNodes::draw(int64_t step, bool held_out) {
  if (!held_out) draws_.step = static_cast<uint64_t>(step);
  in_loss_ = held_out ? held_out_ : trained_;
  targets_.clear();
  for (size_t i = 0; i < y_.size(); ++i) targets_.push_back((train_[i] == 1) == held_out ? -1 : y_[i]);
  return 1;
}

void GridNodes::write_batch(const std::filesystem::path& file) const {
  const int64_t n = std::ssize(nodes_);
  io::SafetensorsWriter writer(file, {{"nodes", DType::i32, {n}}, {"targets", DType::i32, {n}}});
  for (const io::TensorSpec& spec : writer.order())
    writer.write(spec.name, view_of((spec.name == "nodes" ? nodes_ : targets_).data(), {n}));
  writer.finish();
}

void GridNodes::run(Ctx& ctx, int64_t, int64_t, bool backward, Sums& sums) {
  ctx.tape = backward ? &tape_ : nullptr;
  nn::StateView none;
  const SeqMap rows = SeqMap::one(std::ssize(nodes_));
  nn::Run run{.ctx = ctx, .seqs = rows, .state = none, .numerics = numerics_of(recipe_)};
  if (backward) run.draws = &draws_;
  const gnn::GridNetwork::Part in = network_->input(), out = network_->output();
  {
    const Tensor x(ctx.arena, masters_.products(), {in.nodes.count, in.channels.count});
    if (x.dtype() == DType::bf16)
      std::transform(x_.begin(), x_.end(), x.mut().as<Bf16>(), &to_bf16);
    else
      std::copy(x_.begin(), x_.end(), x.mut().as<float>());
    const Tensor logits = network_->forward(run, x),
                 dlogits = backward ? Tensor(ctx.arena, DType::f32, logits.shape()) : Tensor();
    const GridLossSums own = grid_loss(ctx, network_->class_ranks(),
                                       {.logits = logits.view(),
                                        .targets = view_of(targets_.data(), {std::ssize(targets_)}),
                                        .dlogits = backward ? dlogits.mut() : MutView(),
                                        .first = out.channels.begin,
                                        .weight = 1 / static_cast<float>(tokens())});
    const GridLossSums all = add_up(network_->node_ranks(), own);
    const auto nodes = static_cast<double>(tokens());
    sums.add("loss", all.loss, nodes);
    sums.add("accuracy", all.right, nodes);
    if (backward) tape_.add_grad(ctx, logits, dlogits);
  }
  if (backward) tape_.backward(ctx);
  tape_.clear();
  ctx.tape = nullptr;
}

}  // namespace braid::train
