#include "prune/input_norms.h"

#include <cmath>

namespace braid::prune {
namespace {

// The role of the first part of a fused matrix: its parts read the same.
ParamRole read_as(ParamRole role) {
  if (role == ParamRole::qkv) return ParamRole::q;
  if (role == ParamRole::gate_up) return ParamRole::gate;
  return role;
}

}  // namespace

void InputNorms::add(const Key& key, std::span<const float> row) {
  Sums& s = sums_[key];
  s.squares.resize(row.size());
  for (size_t i = 0; i < row.size(); ++i) s.squares[i] += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  ++s.tokens;
}

void InputNorms::product(const Param& w, const View& x, const View&) {
  std::vector<float> row(static_cast<size_t>(x.dim(1)));
  for (int64_t t = 0; t < x.dim(0); ++t) {
    nn::read_row(x, t, row);
    add({w.layer, read_as(w.role), w.expert}, row);
  }
}

void InputNorms::experts(Ctx&, const nn::ExpertsSeen& seen) {
  std::vector<float> in(static_cast<size_t>(seen.x.dim(1))), hidden(static_cast<size_t>(seen.u.dim(2)));
  const int layer = seen.up[0].layer;
  for (int64_t t = 0; t < seen.x.dim(0); ++t) {
    nn::read_row(seen.x, t, in);
    for (int64_t k = 0; k < seen.experts.dim(1); ++k) {
      const int e = seen.experts.as<int32_t>(t)[k];
      nn::read_hidden(seen, t, k, hidden);
      add({layer, ParamRole::expert_up, e}, in);
      if (!seen.gate.empty()) add({layer, ParamRole::expert_gate, e}, in);
      add({layer, ParamRole::expert_down, e}, hidden);
    }
  }
}

std::vector<float> InputNorms::of(const ParamInfo& matrix, int expert, int64_t cols) const {
  std::vector<float> norms(static_cast<size_t>(cols), 1.0f);
  const auto found = sums_.find({matrix.layer, read_as(matrix.role), expert});
  if (found == sums_.end() || std::ssize(found->second.squares) != cols) return norms;
  for (size_t i = 0; i < norms.size(); ++i)
    norms[i] = static_cast<float>(std::sqrt(found->second.squares[i] / static_cast<double>(found->second.tokens)));
  return norms;
}

}  // namespace braid::prune
