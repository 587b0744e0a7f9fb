// Sizes of a nested model that are not decided yet: a share for each size that an axis may have, as a router gives them
// (train/nest_router.h). A unit's mask is the sum of the shares of the sizes that keep it; where one size of every axis
// has share 1, the masked model computes what its slice does, up to the rounding of sums and the epsilon of norms.
//
// Masks act on weights, once on what each unit computes: on the rows that write into the residual stream (and, as the
// gate of a skipped layer, on all of these), on the columns that read a block's units, on the rows of the convolution
// that make Mamba's channels. A masked RMSNorm divides by a mean over all channels, of which some are zero; its weight
// is multiplied by f = sqrt(sum m^2 E / sum E), E the energies of its channels (Scores::energy), which makes that the
// slice's: nested.h scales its norms by the same energies.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "prune/nested.h"

namespace braid::prune {

// By axis and size.
using Shares = std::vector<std::vector<double>>;

struct SoftAxis {
  Axis axis = Axis::hidden;
  std::vector<int64_t> sizes{};  // ascending, the last is all
};

// Of a parameter [rows, cols]: an element is multiplied by its row's and its column's.
struct Factors {
  std::vector<double> rows{}, cols{};
};

class SoftSizes {
 public:
  // All outlive this. Axes get up to 9 sizes, from the least of the usual floors and of the budgets. Error when the
  // nested model has no energies or order of layers.
  SoftSizes(const models::Config& config, const Layouts& layouts, const Nested& nested, const std::string& where);

  const std::vector<SoftAxis>& axes() const { return axes_; }
  // One size of every axis: the smallest, or all that there is.
  Shares smallest() const;
  Shares whole() const;

  void set(const Shares& shares);
  Factors factors(const Layout& layout) const;
  // Experts that the selection of a router leaves out: of the layer of its bias.
  std::vector<bool> closed_experts(int layer) const;

  // Parameters (or active ones: what nested.json measures) at these shares, over those of the whole. `slope`: adds that
  // of slope * cost to the slopes of the shares.
  double cost(double slope = 0);
  // Adds the slopes of a parameter's factors.
  void add_slopes(const Layout& layout, const Factors& factors, const Factors& slopes);
  // By axis and size, since the last call.
  Shares take_slopes();

  // The sizes of the largest shares, as nested.json lists them.
  Budget budget(const Shares& shares) const;

 private:
  using Group = std::pair<Label, int>;  // units of a label in a layer; of layer -1: hidden, and layers as `none`
  struct Mask {
    std::vector<std::vector<uint8_t>> from{};  // by axis: the first size that keeps a unit; empty: all do
    std::vector<double> value{}, slope{};
    double common = 0;  // slope of all units alike
  };
  // What a row or column is multiplied by: masks of at most a layer, an expert and a unit.
  struct Unit {
    Group group{};
    size_t index = 0;
  };
  struct Units {
    std::array<Unit, 3> of{};
    size_t count = 0;
    void add(const Group& group, size_t index) { of[count++] = {group, index}; }
  };

  double value(const Units& units) const;
  void add_slope(const Units& units, double slope);
  bool gated(const Layout& layout) const;
  std::vector<Units> units_of(const Layout& layout, bool rows) const;
  double units_in(const std::vector<Piece>& pieces, const Layout& layout) const;
  double count(double slope);
  void add_axes(const Nested& nested);
  void find_units();
  std::vector<double> energies_of(const Layout& layout, size_t begin, size_t end) const;
  std::vector<std::pair<size_t, size_t>> norm_groups_of(const Layout& layout) const;  // begin and end in its columns

  const models::Config& config_;
  const Layouts& layouts_;
  bool active_;
  std::vector<int64_t> layer_order_;
  Scores energy_;  // energies alone
  std::vector<SoftAxis> axes_;
  std::map<Group, Mask> masks_;
  Shares shares_;
  double whole_ = 0;
};

}  // namespace braid::prune
