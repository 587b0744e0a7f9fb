#include "gnn/block.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "gnn/edge_ops.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::gnn {

namespace {

Block plain_block(graph::Graph graph, sparse::Use use) {
  Block block{.graph = std::move(graph)};
  block.plans = std::make_unique<sparse::Plans>(
      sparse::Plans{.in = sparse::Plan(block.graph.in, use), .out = sparse::Plan(block.graph.out, use)});
  block.receivers = SeqMap::one(block.rows());
  block.senders = SeqMap::one(block.cols());
  return block;
}

std::unique_ptr<EdgeBlock> edge_block(graph::Graph graph) {
  const graph::Csr& in = graph.in;
  graph::Csr messages{.rows = in.rows, .cols = in.edges(), .rowptr = in.rowptr};
  messages.col.resize(in.col.size());
  std::iota(messages.col.begin(), messages.col.end(), 0);
  auto block = std::make_unique<EdgeBlock>();
  block->messages = plain_block(graph::make_graph(std::move(messages)), sparse::Use::once);
  block->graph = std::move(graph);
  return block;
}

// Of a block whose receivers are the first of its senders.
graph::Csr with_loops(const graph::Csr& in) {
  graph::Csr all{.rows = in.rows, .cols = in.cols};
  for (int64_t i = 0; i < in.rows; ++i) {
    const auto begin = in.col.begin() + in.rowptr[static_cast<size_t>(i)],
               end = in.col.begin() + in.rowptr[static_cast<size_t>(i) + 1],
               self = std::lower_bound(begin, end, static_cast<int32_t>(i));
    all.col.insert(all.col.end(), begin, self);
    all.col.push_back(static_cast<int32_t>(i));
    all.col.insert(all.col.end(), self, end);
    all.rowptr.push_back(all.edges());
  }
  return all;
}

}  // namespace

void add_edge_blocks(Block& block) {
  check_edge_blocks(block.graph.edges(), block.rows());
  block.plain = edge_block(block.graph);
  block.looped = edge_block(graph::make_graph(with_loops(block.graph.in)));
  if (block.self_norm.empty()) return;
  const graph::Csr& in = block.looped->graph.in;
  auto next = block.norm.begin();
  for (int64_t i = 0; i < in.rows; ++i) {  // without loops of its own, as all graphs are read
    for (int64_t e = in.rowptr[static_cast<size_t>(i)]; e < in.rowptr[static_cast<size_t>(i) + 1]; ++e)
      block.looped->norm.push_back(in.col[static_cast<size_t>(e)] == i ? block.self_norm[static_cast<size_t>(i)]
                                                                       : *next++);
  }
}

Block make_sampled_block(graph::Graph graph, sparse::Use use) { return plain_block(std::move(graph), use); }

std::vector<float> gcn_roots(const graph::Csr& csr) {
  std::vector<float> roots;
  roots.reserve(static_cast<size_t>(csr.rows));
  for (int64_t i = 0; i < csr.rows; ++i) {
    auto degree = static_cast<float>(csr.degree(i) + 1);
    if (!csr.weight.empty() || !csr.loop.empty()) {
      auto sum = static_cast<double>(csr.loop_of(i));
      for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e)
        sum += static_cast<double>(csr.weight_of(e));
      degree = static_cast<float>(sum);
    }
    if (degree < 0)
      fail("edge_weight",
           {.what = fmt::format("the edges to node {} weigh less than {:.6g} together", i, -csr.loop_of(i)),
            .got = fmt::format("{:.6g}", degree - csr.loop_of(i)),
            .expected = fmt::format("{:.6g} or more, since gcn takes the root of {:.6g} plus their sum",
                                    -csr.loop_of(i), csr.loop_of(i)),
            .hint = "data graph --unweighted, or another model"});
    roots.push_back(degree > 0 ? 1 / std::sqrt(degree) : 0);
  }
  return roots;
}

void add_sampled_values(Block& block, const Block& whole, std::span<const int32_t> nodes) {
  if (whole.root.empty()) return;
  const graph::Csr& in = block.graph.in;
  const bool norm = !whole.self_norm.empty();
  const auto degree = [&](int64_t i) {
    return static_cast<float>(whole.graph.in.degree(nodes[static_cast<size_t>(i)]));
  };
  const auto root = [&](int64_t i) { return whole.root[static_cast<size_t>(nodes[static_cast<size_t>(i)])]; };
  (norm ? block.norm : block.pseudo).reserve((norm ? 1 : 2) * in.col.size());
  for (int64_t i = 0; i < in.rows; ++i) {
    const float own = root(i), each = in.degree(i) > 0 ? degree(i) / static_cast<float>(in.degree(i)) : 0;
    if (norm) block.self_norm.push_back(whole.self_norm[static_cast<size_t>(nodes[static_cast<size_t>(i)])]);
    for (int64_t e = in.rowptr[static_cast<size_t>(i)]; e < in.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const float other = root(in.col[static_cast<size_t>(e)]);
      if (norm) {
        block.norm.push_back(each * (own * other * in.weight_of(e)));
      } else {
        block.pseudo.insert(block.pseudo.end(), {own, other});
      }
    }
  }
}

Block make_block(graph::Graph graph, EdgeValues values, sparse::Use use) {
  Block block = plain_block(std::move(graph), use);
  const graph::Csr& in = block.graph.in;
  CHECK(in.rows == in.cols, "a whole graph of {} rows and {} columns", in.rows, in.cols);
  if (values == EdgeValues::none) return block;
  const bool norm = values == EdgeValues::norm;
  std::vector<float> root;
  if (norm) {
    root = gcn_roots(in);
  } else {
    root.reserve(static_cast<size_t>(in.rows));
    for (int64_t i = 0; i < in.rows; ++i) root.push_back(1 / std::sqrt(static_cast<float>(in.degree(i) + 1)));
  }
  (norm ? block.norm : block.pseudo).reserve((norm ? 1 : 2) * in.col.size());
  for (size_t i = 0; i < static_cast<size_t>(in.rows); ++i) {
    if (norm) block.self_norm.push_back(root[i] * root[i] * in.loop_of(static_cast<int64_t>(i)));
    for (int64_t e = in.rowptr[i]; e < in.rowptr[i + 1]; ++e) {
      const float source = root[static_cast<size_t>(in.col[static_cast<size_t>(e)])];
      if (norm) {
        block.norm.push_back(root[i] * source * in.weight_of(e));
      } else {
        block.pseudo.insert(block.pseudo.end(), {root[i], source});
      }
    }
  }
  block.root = std::move(root);
  return block;
}

}  // namespace braid::gnn
