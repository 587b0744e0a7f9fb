// Where the units of every axis lie in the tensors of a model: a table by role, with the segments of fused matrices.
// Cutting a tensor, and adding up what a unit is worth over its tensors, both read it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/inventory.h"

namespace braid::prune {

enum class Label : uint8_t {
  none,  // stays whole
  hidden,
  q_heads,
  kv_heads,
  mamba_heads,
  inner,  // Mamba's channels, [H, P]
  ffn,    // of the dense block, or of the shared expert
  experts,
  expert_ffn,  // of one expert
  latent,
};
inline constexpr size_t kLabels = 10;

// `units` units of `width` neighbours each, from `begin` on.
struct Piece {
  Label label = Label::none;
  int64_t begin = 0, units = 0, width = 1;
};

// Of a tensor as products read it, [rows, cols]; a vector is [1, n]. The pieces cover all of it, in order. A stack of
// experts [E, rows, cols] has the pieces of one expert.
struct Layout {
  models::TensorSpec spec{};
  std::vector<Piece> rows{}, cols{};
  bool stack = false;
};

// The pieces of a parameter [rows, cols], not a bias; `latent`: the experts of its layer work in a narrower space.
struct Pieces {
  std::vector<Piece> rows{}, cols{};
};
Pieces pieces_of(const ParamInfo& info, int64_t rows, int64_t cols, bool latent);

class Layouts {
 public:
  // Of what `files` hold; without files, experts one by one. Error for parameters that are part of no axis known here.
  explicit Layouts(const models::Config& config, const nn::ParamSource* files = nullptr);
  const Layout& of(const std::string& name) const { return of_.at(name); }
  // One matrix of expert `expert`, by the name of the stack of all.
  const Layout& of_expert(const std::string& stack, int expert) const { return of_.at(experts_.at({stack, expert})); }
  const std::vector<std::string>& names() const { return names_; }  // in the order of the inventory

 private:
  std::map<std::string, Layout> of_;
  std::map<std::pair<std::string, int>, std::string> experts_;
  std::vector<std::string> names_;
};

}  // namespace braid::prune
