#include "prune/soft_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sys/error.h"

namespace braid::prune {
namespace {

using models::Config;

constexpr int64_t kSizesMax = 9;

// Whether the mask of `label` acts on the rows, or on the columns, of a product with this role.
bool acts_on_rows(ParamRole role, Label label) {
  return label == Label::hidden || (label == Label::inner && role == ParamRole::conv) ||
         (label == Label::latent && role == ParamRole::latent_in);
}

bool acts_on_cols(ParamRole role, Label label) {
  switch (role) {
    case ParamRole::embedding:
    case ParamRole::positions:
      return label == Label::hidden;
    case ParamRole::attention_out:
      return label == Label::q_heads;
    case ParamRole::down:
      return label == Label::ffn;
    case ParamRole::expert_down:
      return label == Label::expert_ffn;
    case ParamRole::latent_out:
      return label == Label::latent;
    default:
      return false;
  }
}

bool is_norm(ParamRole role) { return role == ParamRole::norm || role == ParamRole::gated_norm; }

bool acts(const Layout& layout, Label label, bool rows) {
  const models::TensorSpec& spec = layout.spec;
  if (spec.role == ParamRole::bias) return !rows && !is_norm(spec.of) && acts_on_rows(spec.of, label);
  return rows ? acts_on_rows(spec.role, label) : acts_on_cols(spec.role, label);
}

// Axes whose masks would not do what a slice does: norms of another kind, or behind a block, would undo them, and a
// router without a bias selects among all of its experts.
bool can_mask(const Config& config, Axis axis) {
  bool after = false, biased = true;
  models::each_part(config, [&](const models::PartSpec& part) {
    after = after || !part.after.empty();
    if (const auto* moe = std::get_if<nn::MoeSpec>(&part.block)) biased = biased && moe->router == RouterKind::sigmoid;
  });
  if (axis == Axis::hidden) return config.norm == models::NormKind::rms && !after;
  if (axis == Axis::layers) return !after;
  return axis != Axis::experts || biased;
}

std::vector<int64_t> sizes_between(int64_t least, int64_t full, int64_t step) {
  const int64_t multiples = (full - least + step - 1) / step, stride = (multiples + kSizesMax - 2) / (kSizesMax - 1);
  std::vector<int64_t> sizes;
  for (int64_t size = least; size < full; size += stride * step) sizes.push_back(size);
  sizes.push_back(full);
  return sizes;
}

const nn::MoeSpec* experts_of(const Config& config, int layer) {
  for (const models::PartSpec& part : config.layers[static_cast<size_t>(layer)].parts) {
    if (const auto* moe = std::get_if<nn::MoeSpec>(&part.block)) return moe;
  }
  return nullptr;
}

size_t largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

SoftSizes::SoftSizes(const Config& config, const Layouts& layouts, const Nested& nested, const std::string& where)
    : config_(config), layouts_(layouts), active_(nested.measure == "active"), layer_order_(nested.layer_order) {
  if (layer_order_.empty() || nested.energy.empty())
    fail(where, {.what = "the nested model was made without what other sizes than its own need",
                 .expected = "layer_order and norm_energy in nested.json",
                 .hint = "braid nest again"});
  energy_.energy = nested.energy;
  add_axes(nested);
  find_units();
  set(whole());
  whole_ = count(0);
}

void SoftSizes::add_axes(const Nested& nested) {
  for (const AxisRange& range : axes_of(config_, {})) {
    if (!range.why.empty() || !can_mask(config_, range.axis)) continue;
    int64_t least = range.least;
    for (const Budget& b : nested.budgets) least = std::min(least, b.sizes[range.axis]);
    axes_.push_back({range.axis, sizes_between(least, range.full, range.step)});
  }
}

// A size of one axis alone keeps the first units of its labels: which, as a slice is cut.
void SoftSizes::find_units() {
  const Keep all = order_of(config_);
  const auto each = [](const Keep& keep, const auto& of) {
    of(Group{Label::hidden, -1}, keep.hidden);
    for (const auto& [layer, own] : keep.of_layer) {
      for (size_t l = 0; l < kLabels; ++l) {
        if (!own.units[l].empty()) of(Group{static_cast<Label>(l), layer}, own.units[l]);
      }
      if (!own.expert_ffn.empty()) of(Group{Label::expert_ffn, layer}, own.expert_ffn[0]);
    }
    of(Group{Label::none, -1}, keep.layers);
  };
  each(all, [&](const Group& group, const std::vector<int64_t>& units) {
    masks_[group] = {.from = std::vector<std::vector<uint8_t>>(axes_.size()),
                     .value = std::vector<double>(units.size(), 1),
                     .slope = std::vector<double>(units.size())};
  });
  for (size_t a = 0; a < axes_.size(); ++a) {
    for (size_t j = axes_[a].sizes.size(); j-- > 0;) {
      Sizes sizes;
      sizes[axes_[a].axis] = axes_[a].sizes[j];
      Keep order = all;
      order.layers = layer_order_;
      each(first_of(config_, order, sizes), [&](const Group& group, const std::vector<int64_t>& units) {
        Mask& mask = masks_.at(group);
        if (mask.from[a].empty() && units.size() == mask.value.size()) return;  // all, so far
        if (mask.from[a].empty()) mask.from[a].assign(mask.value.size(), static_cast<uint8_t>(j + 1));
        for (const int64_t u : units) mask.from[a][static_cast<size_t>(u)] = static_cast<uint8_t>(j);
      });
    }
  }
}

Shares SoftSizes::smallest() const {
  Shares shares;
  for (const SoftAxis& axis : axes_) shares.emplace_back(axis.sizes.size(), 0.0)[0] = 1;
  return shares;
}

Shares SoftSizes::whole() const {
  Shares shares;
  for (const SoftAxis& axis : axes_) shares.emplace_back(axis.sizes.size(), 0.0).back() = 1;
  return shares;
}

void SoftSizes::set(const Shares& shares) {
  shares_ = shares;
  Shares kept(axes_.size());  // by the first size that keeps a unit: the sum of it and all larger ones
  for (size_t a = 0; a < axes_.size(); ++a) {
    kept[a] = shares[a];
    for (size_t j = kept[a].size() - 1; j-- > 0;) kept[a][j] += kept[a][j + 1];
    kept[a][0] = 1;
  }
  for (auto& [group, mask] : masks_) {
    for (size_t u = 0; u < mask.value.size(); ++u) {
      mask.value[u] = 1;
      for (size_t a = 0; a < axes_.size(); ++a) {
        if (!mask.from[a].empty()) mask.value[u] *= kept[a][mask.from[a][u]];
      }
    }
  }
}

double SoftSizes::value(const Units& units) const {
  double product = 1;
  for (size_t i = 0; i < units.count; ++i) product *= masks_.at(units.of[i].group).value[units.of[i].index];
  return product;
}

void SoftSizes::add_slope(const Units& units, double slope) {
  for (size_t i = 0; i < units.count; ++i) {
    double others = slope;
    for (size_t k = 0; k < units.count; ++k) {
      if (k != i) others *= masks_.at(units.of[k].group).value[units.of[k].index];
    }
    masks_.at(units.of[i].group).slope[units.of[i].index] += others;
  }
}

bool SoftSizes::gated(const Layout& layout) const {
  const int layer = layout.spec.layer;
  return layer >= 0 && layer < static_cast<int>(config_.layers.size());
}

// What each row, or column, is multiplied by.
std::vector<SoftSizes::Units> SoftSizes::units_of(const Layout& layout, bool rows) const {
  const models::TensorSpec& spec = layout.spec;
  const int64_t count = rows ? (layout.stack ? spec.shape[0] * spec.shape[1] : spec.rows()) : spec.cols();
  const int64_t each = rows && layout.stack ? spec.shape[1] : count;
  std::vector<Units> list(static_cast<size_t>(count));
  if (rows && spec.role == ParamRole::expert_down) {
    for (int64_t i = 0; i < count; ++i)
      list[static_cast<size_t>(i)].add({Label::experts, spec.layer},
                                       static_cast<size_t>(layout.stack ? i / each : spec.expert));
  }
  for (const Piece& p : rows ? layout.rows : layout.cols) {
    if (p.label == Label::none || !acts(layout, p.label, rows)) continue;
    const bool hidden = p.label == Label::hidden, writes = rows || spec.role == ParamRole::bias;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i % each - p.begin;
      if (at < 0 || at >= p.units * p.width) continue;
      Units& own = list[static_cast<size_t>(i)];
      own.add({p.label, hidden ? -1 : spec.layer}, static_cast<size_t>(at / p.width));
      if (hidden && writes && gated(layout)) own.add({Label::none, -1}, static_cast<size_t>(spec.layer));
    }
  }
  return list;
}

std::vector<std::pair<size_t, size_t>> SoftSizes::norm_groups_of(const Layout& layout) const {
  std::vector<std::pair<size_t, size_t>> groups;
  const Label label = layout.cols[0].label;
  if (!is_norm(layout.spec.role) || (label != Label::hidden && label != Label::inner)) return groups;
  const auto count = static_cast<size_t>(norm_groups(config_, layout)),
             size = static_cast<size_t>(layout.spec.cols()) / count;
  for (size_t g = 0; g < count; ++g) groups.emplace_back(g * size, (g + 1) * size);
  return groups;
}

// Energies of the channels of a norm's group; all alike where a slice does not scale it.
std::vector<double> SoftSizes::energies_of(const Layout& layout, size_t begin, size_t end) const {
  std::vector<double> own(end - begin, 1.0);
  const auto found = energy_.energy.find(layout.spec.name);
  if (found == energy_.energy.end()) return own;
  const auto first = found->second.begin() + static_cast<int64_t>(begin);
  if (std::any_of(first, first + std::ssize(own), [](double e) { return e > 0; }))
    std::copy_n(first, own.size(), own.begin());
  return own;
}

Factors SoftSizes::factors(const Layout& layout) const {
  Factors f;
  for (const Units& u : units_of(layout, true)) f.rows.push_back(value(u));
  for (const Units& u : units_of(layout, false)) f.cols.push_back(value(u));
  for (const auto& [begin, end] : norm_groups_of(layout)) {
    const Label label = layout.cols[0].label;
    const std::vector<double>& m = masks_.at({label, label == Label::hidden ? -1 : layout.spec.layer}).value;
    const std::vector<double> energies = energies_of(layout, begin, end);
    double all = 0, left = 0;
    for (size_t i = begin; i < end; ++i) {
      all += energies[i - begin];
      left += m[i] * m[i] * energies[i - begin];
    }
    std::fill(f.cols.begin() + static_cast<int64_t>(begin), f.cols.begin() + static_cast<int64_t>(end),
              std::sqrt(left / all));
  }
  return f;
}

void SoftSizes::add_slopes(const Layout& layout, const Factors& factors, const Factors& slopes) {
  for (const bool rows : {true, false}) {
    const std::vector<Units> units = units_of(layout, rows);
    const std::vector<double>& own = rows ? slopes.rows : slopes.cols;
    for (size_t i = 0; i < units.size(); ++i) add_slope(units[i], own[i]);
  }
  for (const auto& [begin, end] : norm_groups_of(layout)) {
    const Label label = layout.cols[0].label;
    Mask& mask = masks_.at({label, label == Label::hidden ? -1 : layout.spec.layer});
    const std::vector<double> energies = energies_of(layout, begin, end);
    double slope = 0;
    for (size_t i = begin; i < end; ++i) slope += slopes.cols[i];
    const double f = factors.cols[begin], all = std::accumulate(energies.begin(), energies.end(), 0.0);
    if (f == 0) continue;
    for (size_t i = begin; i < end; ++i) mask.slope[i] += slope * mask.value[i] * energies[i - begin] / (f * all);
  }
}

std::vector<bool> SoftSizes::closed_experts(int layer) const {
  std::vector<bool> closed;
  for (const double m : masks_.at({Label::experts, layer}).value) closed.push_back(m < 0.5);
  return closed;
}

double SoftSizes::units_in(const std::vector<Piece>& pieces, const Layout& layout) const {
  double sum = 0;
  for (const Piece& p : pieces) {
    double units = static_cast<double>(p.units);
    if (p.label != Label::none) {
      const std::vector<double>& m = masks_.at({p.label, p.label == Label::hidden ? -1 : layout.spec.layer}).value;
      units = std::accumulate(m.begin(), m.end(), 0.0);
    }
    sum += units * static_cast<double>(p.width);
  }
  return sum;
}

double SoftSizes::count(double slope) {
  double total = 0;
  for (const std::string& name : layouts_.names()) {
    const Layout& layout = layouts_.of(name);
    const models::TensorSpec& spec = layout.spec;
    if (active_ && spec.mtp) continue;
    const double rows = units_in(layout.rows, layout), cols = units_in(layout.cols, layout);
    double times = 1, gate = 1;
    Mask* experts = nullptr;  // those that count
    if (layout.stack || spec.expert >= 0) {
      experts = &masks_.at({Label::experts, spec.layer});
      const auto all = static_cast<double>(experts->value.size());
      if (active_) {
        times = static_cast<double>(experts_of(config_, spec.layer)->top_k) / (layout.stack ? 1 : all);
        experts = nullptr;
      } else {
        times = layout.stack ? std::accumulate(experts->value.begin(), experts->value.end(), 0.0)
                             : experts->value[static_cast<size_t>(spec.expert)];
      }
    }
    Mask& gates = masks_.at({Label::none, -1});
    if (gated(layout)) gate = gates.value[static_cast<size_t>(spec.layer)];
    total += rows * cols * times * gate;
    if (slope == 0) continue;
    if (gated(layout)) gates.slope[static_cast<size_t>(spec.layer)] += slope * rows * cols * times;
    if (experts && layout.stack) experts->common += slope * rows * cols * gate;
    if (experts && !layout.stack) experts->slope[static_cast<size_t>(spec.expert)] += slope * rows * cols * gate;
    for (const bool of_rows : {true, false}) {
      for (const Piece& p : of_rows ? layout.rows : layout.cols) {
        if (p.label == Label::none) continue;
        Mask& mask = masks_.at({p.label, p.label == Label::hidden ? -1 : spec.layer});
        mask.common += slope * static_cast<double>(p.width) * (of_rows ? cols : rows) * times * gate;
      }
    }
  }
  return total;
}

double SoftSizes::cost(double slope) { return count(slope / whole_) / whole_; }

Shares SoftSizes::take_slopes() {
  Shares kept, slopes;
  for (const SoftAxis& axis : axes_) kept.emplace_back(axis.sizes.size(), 0.0);
  slopes = kept;
  const auto kept_share = [&](size_t a, uint8_t from) {
    if (from == 0) return 1.0;
    return std::accumulate(shares_[a].rbegin(), shares_[a].rend() - from, 0.0);
  };
  for (auto& [group, mask] : masks_) {
    for (size_t u = 0; u < mask.value.size(); ++u) {
      for (size_t a = 0; a < axes_.size(); ++a) {
        if (mask.from[a].empty()) continue;
        double slope = mask.slope[u] + mask.common;
        for (size_t b = 0; b < axes_.size(); ++b) {
          if (b != a && !mask.from[b].empty()) slope *= kept_share(b, mask.from[b][u]);
        }
        kept[a][mask.from[a][u]] += slope;
      }
    }
    std::fill(mask.slope.begin(), mask.slope.end(), 0.0);
    mask.common = 0;
  }
  for (size_t a = 0; a < axes_.size(); ++a) std::partial_sum(kept[a].begin(), kept[a].end(), slopes[a].begin());
  return slopes;
}

Budget SoftSizes::budget(const Shares& shares) const {
  Sizes sizes = full_sizes(config_);
  for (size_t a = 0; a < axes_.size(); ++a) sizes[axes_[a].axis] = axes_[a].sizes[largest(shares[a])];
  Keep order = order_of(config_);
  order.layers = layer_order_;
  Keep keep = first_of(config_, order, sizes);
  scale_norms(config_, layouts_, energy_, keep);
  return budget_of(config_, layouts_, keep, sizes);
}

}  // namespace braid::prune
