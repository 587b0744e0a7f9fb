// QorNetwork: the quality of result of a recipe on a circuit. A graph network reads the circuit, its mean and its
// maximum over the nodes are the circuit's row; that is computed once for each circuit of a batch, and its product
// taken, before samples gather their rows. The embedding of a recipe is a convolution over its steps (a word's row of a
// table for each of the last kWindow steps, and one for the place), as a sparse product of rows of ones with the table,
// and the mean over steps: with few recipes, a weight for every place and channel would learn them by heart. Both meet
// in an MLP:
//   r = mean over t of relu(sum over k < kWindow of table[k, word_(t - k)] + table[place t])   [width]
//   u = relu(W_r r + W_g circuit + b),   y = W_o relu(W_h u + b_h) + b_o                       [targets]
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/tape.h"
#include "eda/split.h"
#include "gnn/layer.h"

namespace braid::eda {

// Of a node: input, gate or output; none, one or two inverted fan-ins of a gate or an output; its level over the
// circuit's depth; log2 of 1 + its fan-out, over 8.
inline constexpr int64_t kFeatures = 8;
std::vector<float> features_of(const graph::AigNodes& nodes);

inline constexpr int64_t kWindow = 3;

struct QorSpec {
  gnn::Kind kind = gnn::Kind::gin;
  int64_t layers = 2, hidden = 32;   // of the graph network
  int64_t width = 128, inner = 128;  // of a recipe; of the MLP
  int64_t steps = 6;                 // of a recipe
  float dropout = 0;                 // of the MLP
  bool circuits = true;              // false: the recipe alone, which is what the circuits have in common

  int64_t table_rows() const { return kWindow * std::ssize(kSteps) + steps; }
};

// In the order in which QorNetwork takes them.
std::vector<gnn::LayerParam> params_of(const QorSpec& spec);

// Circuits as one graph, whose rows of features follow each other.
struct Circuits {
  gnn::Block edges{}, members{};  // row c of `members`: the nodes of circuit c
  std::vector<float> x{};         // [nodes, kFeatures]
};
// With the values and blocks of edges that layers of `kind` need.
Circuits circuits_of(const Labels& labels, std::span<const int32_t> designs, gnn::Kind kind, sparse::Use use);

// Some samples: which row of circuits each has, and its steps.
struct Picks {
  gnn::Block circuits{};  // row i: the circuit of sample i
  gnn::Block windows{};   // row i steps + t: the rows of the table of step t of sample i
  gnn::Block steps{};     // row i: those rows of sample i
  int64_t count() const { return circuits.rows(); }
};
// `places`: of each sample, into the circuits of a batch.
Picks picks_of(const Labels& labels, std::span<const int32_t> recipes, std::span<const int32_t> places,
               int64_t circuits);

class QorNetwork {
 public:
  // `params` in the order of params_of; they outlive this.
  QorNetwork(const QorSpec& spec, std::span<Param> params);
  // What samples gather: [circuits, inner] F32.
  Tensor circuits(gnn::Run& run, const Circuits& circuits) const;
  // [samples, kTargetCount] F32; `rows` of circuits(), none without circuits.
  Tensor forward(gnn::Run& run, const Picks& picks, const Tensor& rows) const;
  // [samples, width] F32.
  Tensor recipes(gnn::Run& run, const Picks& picks) const;

 private:
  Tensor linear(gnn::Run& run, const SeqMap& rows, const Tensor& x, Param& w, Param* b) const;

  QorSpec spec_;
  std::vector<std::unique_ptr<gnn::Layer>> layers_;
  Param* to_inner_ = nullptr;  // of circuits
  std::span<Param> head_;
};

}  // namespace braid::eda
