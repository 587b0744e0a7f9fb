// Param: the only named tensor above io. A family assigns its name and role once; everything else (optimiser rules,
// adapters, precision, storage, floors, plans) reads roles, not names. Its Segments locate the parts of a fused matrix
// (in_proj, conv, qkv, stacked experts); its Shard says how it may be divided among ranks. Adapter: a small trained
// product added to a frozen one (LoRA, arXiv 2106.09685).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/view.h"
#include "core/weight.h"

namespace braid {

enum class ParamRole : uint8_t {
  none,
  embedding,
  positions,
  head,
  norm,  // of the residual stream
  bias,  // of a product, a convolution or a norm
  q,
  k,
  v,
  qkv,  // q, k and v fused
  attention_out,
  q_norm,
  k_norm,
  linear_attention,  // a plain map in place of attention
  mamba_in,
  conv,
  a_log,
  d_skip,
  dt_bias,
  gated_norm,
  mamba_out,
  up,
  gate,
  gate_up,  // both fused, the gate first
  down,
  linear_mlp,
  router,
  router_bias,  // selection correction; gets no gradient
  expert_up,
  expert_gate,
  expert_down,
  latent_in,
  latent_out,
  loop_in,    // of a loop of layers: reads the state and the loop's input, concatenated
  mtp_in,     // of the prediction block: reads embedding and hidden state, concatenated
  graph_map,  // of a graph network: from features of nodes, or of edges, to others
  lora_a,
  lora_b,
};
const char* name_of(ParamRole role);
// Read by products or looked up by rows, in any format; the rest is small and FP32.
bool is_matrix(ParamRole role);

// Rows of a fused parameter (elements, if it is a vector), made of `units` equal parts that cannot be divided: heads,
// groups, channels.
struct Segment {
  const char* name;
  int64_t begin, rows, units;
};

// How a parameter may be divided: the products of `rows` give concatenated outputs; those of `cols` read a part of the
// inputs each, and their outputs are summed. All parameters of a block divide or none does: by the `units` they have in
// common, if what several units share (keys and values, or the groups of B and C) divides too, or is replicated on the
// ranks that share it.
struct Shard {
  enum class Axis : uint8_t { undeclared, whole, rows, cols };
  Axis axis = Axis::undeclared;
  int64_t units = 0, shared = 0;
  bool uneven = false;  // parts may differ by a unit: rows of a table, which no other parameter follows
};

struct ParamInfo {
  std::string name{};  // as in the family's files
  ParamRole role = ParamRole::none;
  int layer = -1;                  // as numbered in files; those of the prediction block follow the last
  bool mtp = false;                // of the prediction block
  int part = -1;                   // its block among those of the layer; -1: of none, as norms are
  ParamRole of = ParamRole::none;  // of a bias: the product, convolution or norm whose outputs it is added to
  int expert = -1, experts = 0;    // index and count; -1: a stack of all of them
  std::vector<Segment> segments{};
  Shard shard{};
  int64_t padding = -1;  // row of a table that lookups never train; -1: none
};

struct Adapter;

struct Param : ParamInfo {
  Weight value{};
  MutView grad{};                    // F32 [rows, cols], accumulates; empty outside training and if frozen
  int64_t tensor = -1, offset = -1;  // in the arrays of training (models/master_weights.h)
  Adapter* adapter = nullptr;        // of a matrix, added by the product that reads it; its owner outlives the Param
};

// Rows of a fused parameter as a separate parameter.
Param part_of(const Param& whole, const Segment& segment, std::string name, ParamRole role);

// Rank `rank` of `ranks`. Experts may stay whole: each then belongs to one rank. With `sequence` parameters between
// blocks see this rank's share of the tokens.
struct Cut {
  int64_t rank = 0, ranks = 1;
  bool whole_experts = false;
  bool sequence = false;
  int64_t hidden_rank = 0, hidden_ranks = 1;  // of the channels of the residual stream (nn/hidden_parallel.h)
  // Parts may differ by a unit, and ranks that read parts of the same keys and values, or of a group of B and C, each
  // have all of these (models/division.h).
  bool uneven = false;
};
struct Range {
  int64_t begin = 0, count = 0;
};
// Experts that are divided apart from the rest of their layer: whole ones over `ep`, and of each its width over `etp`.
struct ExpertCut {
  Cut ep{}, etp{};

  bool divides() const { return ep.ranks * etp.ranks > 1; }
  Range own(int64_t experts) const {
    const int64_t begin = experts * ep.rank / ep.ranks;
    return {begin, experts * (ep.rank + 1) / ep.ranks - begin};
  }
};
// Of `units` equal things: those of one rank, as even as can be.
inline Range share_of(int64_t units, int64_t rank, int64_t ranks) {
  const int64_t begin = units * rank / ranks;
  return {begin, units * (rank + 1) / ranks - begin};
}
// What a rank holds of a parameter [rows, cols]: rows, or columns if it divides by columns; in order.
std::vector<Range> ranges_of(const ParamInfo& info, int64_t rows, int64_t cols, const Cut& cut);
// The same of the matrix of one expert, or of a stack of them, where `columns` are those of the rows `within` alone.
struct ExpertRanges {
  std::vector<Range> rows{}, columns{};  // one of them is empty
  Range within{};
};
ExpertRanges expert_ranges_of(const ParamInfo& info, int64_t rows, int64_t cols, const ExpertCut& cut);
// Whether `ranks` ranks hold parts of it. Else each holds all.
bool divides(const Shard& shard, int64_t ranks);

// y += scale B (A dropout(x)).
struct Adapter {
  Param a{}, b{};  // [r, K], [N, r]
  float scale = 1;
  float dropout = 0;    // in passes that draw (nn::Run::draws)
  uint32_t number = 0;  // among the adapters of a model: keeps their random numbers apart
};

}  // namespace braid
