#include "gnn/grid.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gnn/grid_ops.h"
#include "graph/grid_cut.h"
#include "nn/ops.h"
#include "nn/tensor_parallel.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::gnn {

std::optional<GridLack> why_not(const NetworkSpec& spec, int64_t nodes, const GridShape& shape) {
  const std::vector<LayerSpec> layers = layers_of(spec);
  for (size_t i = 0; i < layers.size(); ++i) {
    const GridRoles<int64_t> r = roles_of(shape, static_cast<int64_t>(i));
    const char* between = "channels between layers";
    const GridLack all[] = {{"nodes", std::max(r.outer, r.depth), nodes},
                            {i == 0 ? "features" : between, r.inner, layers[i].in},
                            {i + 1 == layers.size() ? "classes" : between, r.outer, layers[i].out}};
    for (const GridLack& lack : all) {
      if (lack.ranks > lack.most) return lack;
    }
  }
  return std::nullopt;
}

void check_grid(const NetworkSpec& spec, int64_t nodes, const GridShape& shape) {
  CHECK(spec.kind == Kind::gcn || (spec.kind == Kind::sage && !picks(spec.aggregate)), "a grid of another network");
  if (const auto lack = why_not(spec, nodes, shape))
    fail("parallel.grid", {.what = fmt::format("an axis has more ranks than there are {}", lack->what),
                           .got = std::to_string(lack->ranks),
                           .expected = fmt::format("at most {}", lack->most)});
}

namespace {

int number(int64_t n) { return static_cast<int>(n); }

}  // namespace

GridRanks::GridRanks(comm::Group& world, const GridShape& shape)
    : shape_(shape),
      x_(world.split(world.rank() / number(shape.x * shape.y) * number(shape.y) + world.rank() % number(shape.y))),
      y_(world.split(world.rank() / number(shape.y))),
      z_(world.split(world.rank() % number(shape.x * shape.y))) {
  CHECK(world.size() == shape.ranks(), "{} ranks", world.size());
}

GridRanks::Roles GridRanks::roles(int64_t layer) { return rotated<comm::Group&>(x_, y_, z_, layer); }

WeightPart weight_part(const LayerSpec& layer, const GridRanks::Roles& roles) {
  const Range block = share_of(layer.out, roles.outer.rank(), roles.outer.size());
  Range own = share_of(block.count, roles.depth.rank(), roles.depth.size());
  own.begin += block.begin;
  return {.block = block, .own = own, .cols = share_of(layer.in, roles.inner.rank(), roles.inner.size())};
}

namespace {

// Self-loops of the nodes that are rows and columns, of weight `weight(position)`.
template <class Weight>
void add_loops(GridBlock& block, const Range& rows, const Range& cols, Weight&& weight) {
  const int64_t begin = std::max(rows.begin, cols.begin),
                end = std::min(rows.begin + rows.count, cols.begin + cols.count);
  if (begin >= end) return;
  block.self_row = begin - rows.begin;
  block.self_source = begin - cols.begin;
  for (int64_t i = begin; i < end; ++i) block.self_norm.push_back(weight(i));
}

}  // namespace

std::unique_ptr<const GridBlock> make_grid_block(const NetworkSpec& spec, const graph::Csr& csr,
                                                 std::span<const int32_t> order, const Range& rows, const Range& cols) {
  auto block = std::make_unique<GridBlock>();
  block->graph = graph::make_graph(graph::block_of(csr, order, rows, cols));
  block->plans =
      std::make_unique<sparse::Plans>(sparse::Plans{.in = sparse::Plan(block->graph.in, sparse::Use::often),
                                                    .out = sparse::Plan(block->graph.out, sparse::Use::often)});
  block->receivers = SeqMap::one(rows.count);
  const bool gcn = spec.kind == Kind::gcn;
  const auto degree = [&](int64_t position) {
    return static_cast<float>(csr.degree(order[static_cast<size_t>(position)]));
  };
  const std::vector<float> roots = gcn ? gcn_roots(csr) : std::vector<float>();
  const auto root = [&](int64_t position) { return roots[static_cast<size_t>(order[static_cast<size_t>(position)])]; };
  const graph::Csr& in = block->graph.in;
  block->norm.reserve(in.col.size());
  for (int64_t i = 0; i < in.rows; ++i) {
    const int64_t row = rows.begin + i;
    for (int64_t e = in.rowptr[static_cast<size_t>(i)]; e < in.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const float own = spec.aggregate == Reduce::mean ? 1 / degree(row) : 1;
      block->norm.push_back(gcn ? root(row) * root(cols.begin + in.col[static_cast<size_t>(e)]) * in.weight_of(e)
                                : own);
    }
  }
  if (gcn)
    add_loops(*block, rows, cols,
              [&](int64_t i) { return root(i) * root(i) * csr.loop_of(order[static_cast<size_t>(i)]); });
  return block;
}

std::unique_ptr<const GridBlock> make_own_rows(const Range& rows, const Range& cols) {
  auto block = std::make_unique<GridBlock>();
  graph::Csr none{.rows = rows.count, .cols = cols.count};
  none.rowptr.assign(static_cast<size_t>(rows.count) + 1, 0);
  block->graph = graph::make_graph(std::move(none));
  block->receivers = SeqMap::one(rows.count);
  add_loops(*block, rows, cols, [](int64_t) { return 1.0f; });
  return block;
}

GridNetwork::GridNetwork(const NetworkSpec& spec, int64_t nodes, GridRanks& ranks, std::span<Param> params)
    : spec_(spec), nodes_(nodes), ranks_(ranks), params_(params), layers_(layers_of(spec)) {
  const size_t each = params_of(layers_[0]).size();
  CHECK(params.size() == each * layers_.size(), "{} parameters of {} layers", params.size(), layers_.size());
}

Range GridNetwork::nodes_of(const comm::Group& ranks) const { return share_of(nodes_, ranks.rank(), ranks.size()); }

void GridNetwork::cut(const graph::Csr& csr, std::span<const int32_t> order) {
  const auto same = [](const Range& a, const Range& b) { return a.begin == b.begin && a.count == b.count; };
  const auto used = std::min(blocks_.size(), layers_.size());
  for (size_t role = 0; role < used; ++role) {
    const GridRanks::Roles r = ranks_.roles(static_cast<int64_t>(role));
    const Range rows = nodes_of(r.depth), cols = nodes_of(r.outer);
    for (size_t other = 0; other < role && !blocks_[role]; ++other) {
      const GridRanks::Roles o = ranks_.roles(static_cast<int64_t>(other));
      if (same(rows, nodes_of(o.depth)) && same(cols, nodes_of(o.outer))) blocks_[role] = blocks_[other];
    }
    if (!blocks_[role]) blocks_[role] = make_grid_block(spec_, csr, order, rows, cols);
    if (spec_.kind == Kind::sage) own_[role] = make_own_rows(rows, cols);
  }
}

GridNetwork::Part GridNetwork::input() const {
  const GridRanks::Roles r = ranks_.roles(0);
  const Range all = nodes_of(r.outer);
  Range own = share_of(all.count, r.depth.rank(), r.depth.size());
  own.begin += all.begin;
  return {.nodes = own, .channels = share_of(spec_.features, r.inner.rank(), r.inner.size())};
}

GridNetwork::Part GridNetwork::output() const {
  const GridRanks::Roles r = ranks_.roles(spec_.layers - 1);
  return {.nodes = nodes_of(r.depth), .channels = share_of(spec_.classes, r.outer.rank(), r.outer.size())};
}

namespace {

Tensor shared(Run& run, comm::Group& ranks, const Tensor& x) {
  return ranks.size() > 1 ? nn::to_parts(run, ranks, x) : x;
}
Tensor summed(Run& run, comm::Group& ranks, const Tensor& y) {
  return ranks.size() > 1 ? nn::sum_of_parts(run, ranks, y) : y;
}

}  // namespace

Tensor GridNetwork::layer(Run& run, int64_t number, Tensor h) const {
  const GridRanks::Roles r = ranks_.roles(number);
  const auto at = static_cast<size_t>(number);
  const bool sage = spec_.kind == Kind::sage;
  const std::span<Param> own = params_.subspan((sage ? 3 : 2) * at);
  if (number > 0) h = shared(run, r.depth, h);
  const auto multiplied = [&](const GridBlock& block, Param& weight) {
    Tensor s = summed(run, r.outer, aggregate(run, block, h));
    if (number > 0) s = shared(run, r.outer, s);
    const Tensor w = gather_weight(run, r.depth, weight, weight_part(layers_[at], r).block.count);
    return product(run, nn::converted(run, s, run.numerics.products), w);
  };
  Tensor y = multiplied(*blocks_[at % 3], own[0]);
  if (sage) y = nn::add(run, y, multiplied(*own_[at % 3], own[2]));
  return shared_bias(run, r.depth, summed(run, r.inner, y), own[1]);
}

Tensor GridNetwork::forward(Run& run, Tensor x) const {
  constexpr uint32_t kUse = 0x676e6e64;  // "gnnd", as on one rank
  const GridRanks::Roles first = ranks_.roles(0);
  x = gather_rows(run, first.depth, x, nodes_of(first.outer).count);
  for (int64_t i = 0; i < spec_.layers; ++i) {
    x = layer(run, i, x);
    if (i + 1 == spec_.layers) break;
    x = nn::act(run, x, {}, Act::relu);
    // Ranks that have the same block drop the same of it.
    const GridRanks::Roles r = ranks_.roles(i);
    const int64_t block = int64_t{r.depth.rank()} * r.outer.size() + r.outer.rank();
    const SeqMap& rows = blocks_[static_cast<size_t>(i % 3)]->receivers;
    Run own{.ctx = run.ctx, .seqs = rows, .state = run.state, .numerics = run.numerics, .draws = run.draws};
    x = nn::dropout(own, x, spec_.dropout, static_cast<uint32_t>(i + spec_.layers * block), kUse);
  }
  return x;
}

}  // namespace braid::gnn
