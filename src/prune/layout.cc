#include "prune/layout.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "sys/error.h"

namespace braid::prune {
namespace {

using models::Config;
using models::TensorSpec;

struct RoleRow {
  ParamRole role;
  Label rows, cols;  // of a vector: cols
};

// Segments come first: they name the rows of fused matrices (kSegments).
constexpr RoleRow kRoles[] = {
    {ParamRole::embedding, Label::none, Label::hidden},
    {ParamRole::positions, Label::none, Label::hidden},
    {ParamRole::head, Label::none, Label::hidden},
    {ParamRole::norm, Label::none, Label::hidden},
    {ParamRole::q, Label::q_heads, Label::hidden},
    {ParamRole::k, Label::kv_heads, Label::hidden},
    {ParamRole::v, Label::kv_heads, Label::hidden},
    {ParamRole::qkv, Label::none, Label::hidden},
    {ParamRole::attention_out, Label::hidden, Label::q_heads},
    {ParamRole::q_norm, Label::none, Label::none},
    {ParamRole::k_norm, Label::none, Label::none},
    {ParamRole::linear_attention, Label::hidden, Label::hidden},
    {ParamRole::mamba_in, Label::none, Label::hidden},
    {ParamRole::conv, Label::none, Label::none},
    {ParamRole::a_log, Label::none, Label::mamba_heads},
    {ParamRole::d_skip, Label::none, Label::mamba_heads},
    {ParamRole::dt_bias, Label::none, Label::mamba_heads},
    {ParamRole::gated_norm, Label::none, Label::inner},
    {ParamRole::mamba_out, Label::hidden, Label::inner},
    {ParamRole::up, Label::ffn, Label::hidden},
    {ParamRole::gate, Label::ffn, Label::hidden},
    {ParamRole::gate_up, Label::none, Label::hidden},
    {ParamRole::down, Label::hidden, Label::ffn},
    {ParamRole::linear_mlp, Label::hidden, Label::hidden},
    {ParamRole::router, Label::experts, Label::hidden},
    {ParamRole::router_bias, Label::none, Label::experts},
    {ParamRole::expert_up, Label::expert_ffn, Label::hidden},
    {ParamRole::expert_gate, Label::expert_ffn, Label::hidden},
    {ParamRole::expert_down, Label::hidden, Label::expert_ffn},
    {ParamRole::latent_in, Label::latent, Label::hidden},
    {ParamRole::latent_out, Label::hidden, Label::latent},
    {ParamRole::mtp_in, Label::hidden, Label::hidden},
};

struct SegmentRow {
  std::string_view name;
  Label label;
};
constexpr SegmentRow kSegments[] = {
    {"q", Label::q_heads}, {"k", Label::kv_heads}, {"v", Label::kv_heads},     {"kv", Label::kv_heads},
    {"z", Label::inner},   {"x", Label::inner},    {"dt", Label::mamba_heads}, {"b", Label::none},
    {"c", Label::none},    {"gate", Label::ffn},   {"up", Label::ffn},
};

bool is_head(Label label) { return label == Label::q_heads || label == Label::kv_heads; }
bool is_expert(ParamRole role) {
  return role == ParamRole::expert_up || role == ParamRole::expert_gate || role == ParamRole::expert_down;
}

// Heads are as many as the shard counts; all other units are single rows.
Piece piece(Label label, int64_t begin, int64_t rows, int64_t heads) {
  const int64_t units = is_head(label) ? heads : rows;
  return {label, begin, units, rows / units};
}

std::vector<Piece> of_segments(const std::vector<Segment>& segments) {
  std::vector<Piece> pieces;
  for (const Segment& s : segments) {
    const auto* row =
        std::find_if(std::begin(kSegments), std::end(kSegments), [&](const SegmentRow& r) { return r.name == s.name; });
    CHECK(row != std::end(kSegments), "a segment {}", s.name);
    pieces.push_back(piece(row->label, s.begin, s.rows, s.units));
  }
  return pieces;
}

// Error for a role that is part of no axis known here.
const RoleRow& row_of(ParamRole role, const std::string& name) {
  const auto* row =
      std::find_if(std::begin(kRoles), std::end(kRoles), [&](const RoleRow& r) { return r.role == role; });
  if (row == std::end(kRoles))
    fail(printable(name), {.what = fmt::format("a parameter that cannot be cut: {}", name_of(role))});
  return *row;
}

// A bias has one element for each row of its weight, or of what a norm normalises.
Label label_of_bias(const ParamInfo& bias) {
  const RoleRow& row = row_of(bias.of, bias.name);
  return is_matrix(bias.of) ? row.rows : row.cols;
}

}  // namespace

Pieces pieces_of(const ParamInfo& info, int64_t rows, int64_t cols, bool latent) {
  const RoleRow& row = row_of(info.role, info.name);
  const bool expert = is_expert(info.role);
  const auto inside = [&](Label label) { return expert && label == Label::hidden && latent ? Label::latent : label; };
  Pieces p;
  p.rows = info.segments.empty() || expert ? std::vector{piece(inside(row.rows), 0, rows, info.shard.units)}
                                           : of_segments(info.segments);
  p.cols = {piece(inside(row.cols), 0, cols, info.shard.units)};
  if (info.role == ParamRole::mtp_in) p.cols = {{Label::hidden, 0, cols / 2}, {Label::hidden, cols / 2, cols / 2}};
  return p;
}

Layouts::Layouts(const Config& config, const nn::ParamSource* files) {
  std::set<int> latent;  // layers whose experts work in a narrower space
  const std::vector<TensorSpec> list = files ? stored_inventory(config, *files) : inventory(config);
  for (const TensorSpec& spec : list) {
    if (spec.role == ParamRole::latent_in) latent.insert(spec.layer);
  }
  for (const TensorSpec& spec : list) {
    Layout l{.spec = spec};
    l.stack = is_expert(spec.role) && spec.expert < 0;
    const int64_t rows = l.stack ? spec.shape[1] : spec.rows(), cols = spec.cols();
    if (spec.role == ParamRole::bias) {
      l.rows = {{Label::none, 0, rows}};
      l.cols = spec.segments.empty() ? std::vector{piece(label_of_bias(spec), 0, cols, spec.shard.units)}
                                     : of_segments(spec.segments);
    } else {
      Pieces pieces = pieces_of(spec, rows, cols, latent.contains(spec.layer));
      l.rows = std::move(pieces.rows);
      l.cols = std::move(pieces.cols);
    }
    if (is_expert(spec.role) && !l.stack) experts_[{spec.stack, spec.expert}] = spec.name;
    names_.push_back(spec.name);
    of_.emplace(spec.name, std::move(l));
  }
}

}  // namespace braid::prune
