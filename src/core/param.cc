#include "core/param.h"

#include <iterator>
#include <utility>

namespace braid {

const char* name_of(ParamRole role) {
  constexpr const char* kNames[] = {
      "none",      "embedding",   "positions",   "head",          "norm",       "bias",       "q",
      "k",         "v",           "qkv",         "attention_out", "q_norm",     "k_norm",     "linear_attention",
      "mamba_in",  "conv",        "a_log",       "d_skip",        "dt_bias",    "gated_norm", "mamba_out",
      "up",        "gate",        "gate_up",     "down",          "linear_mlp", "router",     "router_bias",
      "expert_up", "expert_gate", "expert_down", "latent_in",     "latent_out", "loop_in",    "mtp_in",
      "graph_map", "lora_a",      "lora_b"};
  static_assert(std::size(kNames) == static_cast<size_t>(ParamRole::lora_b) + 1);
  return kNames[static_cast<size_t>(role)];
}

bool is_matrix(ParamRole role) {
  switch (role) {
    case ParamRole::none:
    case ParamRole::norm:
    case ParamRole::bias:
    case ParamRole::q_norm:
    case ParamRole::k_norm:
    case ParamRole::conv:
    case ParamRole::a_log:
    case ParamRole::d_skip:
    case ParamRole::dt_bias:
    case ParamRole::gated_norm:
    case ParamRole::router_bias:
      return false;
    default:
      return true;
  }
}

Param part_of(const Param& whole, const Segment& segment, std::string name, ParamRole role) {
  CHECK(!whole.adapter, "an adapter on the whole of {}", whole.name);
  const int axis = is_matrix(whole.role) ? 0 : 1;  // a vector is [1, n]
  Param part = whole;
  part.name = std::move(name);
  part.role = role;
  part.segments = {{segment.name, 0, segment.rows, segment.units}};
  part.value = axis == 0 ? whole.value.rows_of(segment.begin, segment.rows)
                         : dense_weight(whole.value.codes.slice(1, segment.begin, segment.rows));
  if (whole.grad) part.grad = whole.grad.slice(axis, segment.begin, segment.rows);
  if (whole.offset >= 0) part.offset += segment.begin * (axis == 0 ? whole.value.cols : 1);
  return part;
}

namespace {

// Of `units` things in `extent` rows from `begin`.
Range piece(int64_t begin, int64_t extent, int64_t units, const Cut& cut) {
  const int64_t unit = extent / units, first = units * cut.rank / cut.ranks;
  if (units < cut.ranks) return {begin + first * unit, unit};  // several ranks hold the same
  return {begin + first * unit, (units * (cut.rank + 1) / cut.ranks - first) * unit};
}

// Of the segment's units those that this rank's part of the shard's reads.
Range shared_piece(const Segment& s, const Shard& shard, const Cut& cut) {
  const Range own = share_of(shard.units, cut.rank, cut.ranks);
  const int64_t unit = s.rows / s.units, first = own.begin * s.units / shard.units,
                end = ((own.begin + own.count) * s.units + shard.units - 1) / shard.units;
  return {s.begin + first * unit, (end - first) * unit};
}

}  // namespace

bool divides(const Shard& shard, int64_t ranks) {
  if (shard.axis != Shard::Axis::rows && shard.axis != Shard::Axis::cols) return false;
  if (shard.uneven) return shard.units >= ranks;
  if (shard.units % ranks != 0) return false;
  return shard.shared == 0 || shard.shared % ranks == 0 || ranks % shard.shared == 0;
}

std::vector<Range> ranges_of(const ParamInfo& info, int64_t rows, int64_t cols, const Cut& cut) {
  if (cut.whole_experts && info.experts > 0) {
    const Range own = piece(0, info.experts, info.experts, cut);
    if (info.expert < 0) {  // a stack
      const int64_t each = rows / info.experts;
      return {{own.begin * each, own.count * each}};
    }
    if (info.expert < own.begin || info.expert >= own.begin + own.count) return {};
    return {{0, rows}};
  }
  const bool by_cols = info.shard.axis == Shard::Axis::cols;
  const int64_t extent = by_cols || (rows == 1 && !is_matrix(info.role)) ? cols : rows;
  const bool whole = info.shard.axis != Shard::Axis::rows && info.shard.axis != Shard::Axis::cols;
  if (cut.uneven ? whole : !divides(info.shard, cut.ranks)) return {{0, extent}};
  if (by_cols || info.segments.empty()) return {piece(0, extent, info.shard.units, cut)};
  std::vector<Range> ranges;
  for (const Segment& s : info.segments)
    ranges.push_back(cut.uneven ? shared_piece(s, info.shard, cut) : piece(s.begin, s.rows, s.units, cut));
  return ranges;
}

ExpertRanges expert_ranges_of(const ParamInfo& info, int64_t rows, int64_t cols, const ExpertCut& cut) {
  const bool stack = info.expert < 0, by_cols = info.shard.axis == Shard::Axis::cols && cut.etp.ranks > 1;
  const Range own = stack ? cut.own(info.experts) : Range{0, 1};
  const int64_t each = stack ? rows / info.experts : rows;
  ExpertRanges held{.within = {own.begin * each, own.count * each}};
  if (by_cols) {
    held.columns = {piece(0, cols, info.shard.units, cut.etp)};
    return held;
  }
  for (int64_t e = own.begin; e < own.begin + own.count; ++e) {
    held.rows.push_back(cut.etp.ranks > 1 ? piece(e * each, each, info.shard.units, cut.etp) : Range{e * each, each});
  }
  return held;
}

}  // namespace braid
