// The axes along which a model can be made smaller, and the config that has given sizes of them. A size is that of the
// largest block; where a family lets blocks differ (Puzzle, Llama-Nemotron, dense widths as a list), the others shrink
// in proportion.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/config.h"

namespace braid::prune {

enum class Axis : uint8_t {
  hidden,
  ffn,             // width of dense feed-forward blocks
  heads,           // query heads for each key head
  kv_groups,       // key heads, each with its query heads
  mamba_heads,     // the same number in every group of B and C
  mamba_head_dim,  // channels of a Mamba head
  experts,
  expert_ffn,  // width of an expert
  shared_ffn,  // width of the shared expert
  latent,      // width in which experts work
  layers,
};
inline constexpr size_t kAxes = 11;
const char* name_of(Axis axis);

// Of every axis; 0: as the model has it.
struct Sizes {
  std::array<int64_t, kAxes> of{};
  int64_t& operator[](Axis a) { return of[static_cast<size_t>(a)]; }
  int64_t operator[](Axis a) const { return of[static_cast<size_t>(a)]; }
  bool operator==(const Sizes&) const = default;
};

struct AxisRange {
  Axis axis = Axis::hidden;
  int64_t full = 0;   // 0: the model has no such axis
  int64_t step = 1;   // sizes are multiples of it
  int64_t least = 0;  // and at least this
  std::string why{};  // it cannot be cut; empty: it can
};

// The smallest sizes that are tried, as shares of the whole.
struct Floors {
  double width = 0.5, depth = 0.75;
};

// All axes, in order.
std::array<AxisRange, kAxes> axes_of(const models::Config& config, const Floors& floors);
// From "hidden,ffn". Error for a word that is not an axis, or one that this model cannot be cut along; empty text: all
// that it can.
std::vector<Axis> parse_axes(const std::string& text, const std::array<AxisRange, kAxes>& ranges);

// Blocks of a model with other sizes.
class Resizer {
 public:
  Resizer(const models::Config& config, const Sizes& sizes);
  Resizer(const Sizes& full, const Sizes& sizes);  // of a config whose largest sizes are known
  models::BlockSpec operator()(const models::BlockSpec& spec) const;
  int64_t hidden() const { return hidden_; }

 private:
  int64_t width(Axis axis, int64_t own) const;
  int64_t units(Axis axis, int64_t own, int64_t step, int64_t least) const;
  Sizes sizes_, full_;
  int64_t hidden_ = 0;
};

// The largest size of every axis.
Sizes full_sizes(const models::Config& config);

// The config of the smaller model under the names of this one's tensors: `layers` are the indices of those that stay.
models::Config resized(const models::Config& config, const Sizes& sizes, std::span<const int64_t> layers);

}  // namespace braid::prune
