#include "quant/inputs.h"

#include <algorithm>
#include <cmath>

#include "kernels/linear/linear.h"
#include "sys/check.h"

namespace braid::quant {

void Inputs::begin_sample(bool held) {
  ++sample_;
  held_ = held;
}

void Inputs::append(Site& site, std::span<const float> row) {
  if (site.sample != sample_) {
    site.sample = sample_;
    site.begin = site.held.size();
  }
  site.values.insert(site.values.end(), row.begin(), row.end());
  site.held.push_back(held_ ? 1 : 0);
}

bool Inputs::same_rows(const Site& site, const View& x) const {
  if (site.cols != x.dim(1) || site.sample != sample_) return false;
  if (static_cast<int64_t>(site.held.size() - site.begin) != x.dim(0)) return false;
  std::vector<float> row(static_cast<size_t>(site.cols));
  bool zero = true;  // which others may be by chance
  for (int64_t t = 0; t < x.dim(0); ++t) {
    nn::read_row(x, t, row);
    zero = zero && std::all_of(row.begin(), row.end(), [](float v) { return v == 0; });
    const size_t at = (site.begin + static_cast<size_t>(t)) * row.size();
    if (!std::equal(row.begin(), row.end(), site.values.begin() + static_cast<std::ptrdiff_t>(at))) return false;
  }
  return !zero;
}

// That has these rows already, or a new one.
size_t Inputs::site_of(const View& x) {
  for (size_t i = 0; i < sites_.size(); ++i) {
    if (same_rows(sites_[i], x)) return i;
  }
  sites_.push_back({.cols = x.dim(1)});
  std::vector<float> row(static_cast<size_t>(x.dim(1)));
  for (int64_t t = 0; t < x.dim(0); ++t) {
    nn::read_row(x, t, row);
    append(sites_.back(), row);
  }
  return sites_.size() - 1;
}

// The first sample finds out which matrices share their rows; the later ones add to the same sites.
void Inputs::product(const Param& w, const View& x, const View&) {
  const auto known = uses_.find(w.name);
  if (known == uses_.end()) return use(w.name, site_of(x));
  Site& site = sites_[known->second.site];
  if (site.sample == sample_) return;
  std::vector<float> row(static_cast<size_t>(x.dim(1)));
  for (int64_t t = 0; t < x.dim(0); ++t) {
    nn::read_row(x, t, row);
    append(site, row);
  }
}

void Inputs::norm(const Param& w, const View&, const View&, const View& y) {
  if (w.role != ParamRole::norm && w.role != ParamRole::gated_norm) return;
  product(w, y, y);
  sites_[uses_.at(w.name).site].norm = w.name;
}

void Inputs::experts(Ctx&, const nn::ExpertsSeen& seen) {
  product(seen.up[0], seen.x, seen.x);
  const size_t site = uses_.at(seen.up[0].name).site, first = sites_[site].begin;
  const auto width = static_cast<size_t>(seen.u.dim(2));
  for (size_t e = 0; e < seen.up.size(); ++e) {
    Use& up = uses_.try_emplace(seen.up[e].name, Use{site, 0}).first->second;
    if (up.list == 0) {
      up.list = lists_.size();
      lists_.emplace_back();
    }
    if (!seen.gate.empty()) uses_.insert_or_assign(seen.gate[e].name, up);
    if (uses_.try_emplace(seen.down[e].name, Use{sites_.size(), 0}).second)
      sites_.push_back({.cols = static_cast<int64_t>(width)});
  }
  std::vector<float> hidden(width);
  for (int64_t t = 0; t < seen.x.dim(0); ++t) {
    for (int64_t k = 0; k < seen.experts.dim(1); ++k) {
      const auto e = static_cast<size_t>(seen.experts.as<int32_t>(t)[k]);
      lists_[uses_.at(seen.up[e].name).list].push_back(static_cast<int64_t>(first) + t);
      nn::read_hidden(seen, t, k, hidden);
      append(sites_[uses_.at(seen.down[e].name).site], hidden);
    }
  }
}

template <class Body>
void Inputs::for_rows(const Use& use, Part part, const Body& body) const {
  const Site& site = sites_[use.site];
  const auto wanted = [&](size_t row) { return part == Part::all || (site.held[row] != 0) == (part == Part::held); };
  const auto at = [&](size_t row) { return site.values.data() + row * static_cast<size_t>(site.cols); };
  if (use.list == 0) {
    for (size_t row = 0; row < site.held.size(); ++row) {
      if (wanted(row)) body(at(row));
    }
    return;
  }
  for (const int64_t row : lists_[use.list]) {
    if (wanted(static_cast<size_t>(row))) body(at(static_cast<size_t>(row)));
  }
}

int64_t Inputs::rows(const std::string& matrix, Part part) const {
  const auto found = uses_.find(matrix);
  if (found == uses_.end()) return 0;
  int64_t n = 0;
  for_rows(found->second, part, [&](const float*) { ++n; });
  return n;
}

std::vector<double> Inputs::gram(Ctx& ctx, const std::string& matrix, Part part) const {
  constexpr int64_t kRows = 512;
  const Use& use = uses_.at(matrix);
  const int64_t cols = sites_[use.site].cols;
  std::vector<double> sum(static_cast<size_t>(cols * cols));
  std::vector<float> rows;
  int64_t total = 0;
  const auto flush = [&] {
    const int64_t n = std::ssize(rows) / cols;
    if (n == 0) return;
    const Tensor products(ctx.arena, DType::f32, {cols, cols});
    fill(products.mut(), 0);
    const View x = view_of(rows.data(), {n, cols});
    run(ctx, LinearBwdWeight{.dy = x, .x = x, .dw = products.mut()});
    const float* from = products.view().as<float>();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(from[i]);
    total += n;
    rows.clear();
  };
  for_rows(use, part, [&](const float* row) {
    rows.insert(rows.end(), row, row + cols);
    if (std::ssize(rows) == kRows * cols) flush();
  });
  flush();
  for (double& v : sum) v /= static_cast<double>(std::max<int64_t>(1, total));
  return sum;
}

std::vector<double> Inputs::magnitudes(const std::string& matrix) const {
  const Use& use = uses_.at(matrix);
  std::vector<double> sum(static_cast<size_t>(sites_[use.site].cols));
  for_rows(use, Part::all, [&](const float* row) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(std::fabs(row[i]));
  });
  for (double& v : sum) v /= static_cast<double>(std::max<int64_t>(1, rows(matrix, Part::all)));
  return sum;
}

float Inputs::amax(const std::string& matrix, const std::vector<float>& divisors) const {
  const Use& use = uses_.at(matrix);
  const auto cols = static_cast<size_t>(sites_[use.site].cols);
  float most = 0;
  for_rows(use, Part::all, [&](const float* row) {
    for (size_t i = 0; i < cols; ++i)
      most = std::max(most, std::fabs(divisors.empty() ? row[i] : row[i] / divisors[i]));
  });
  return most;
}

std::vector<std::string> Inputs::norms() const {
  std::vector<std::string> names;
  for (const Site& site : sites_) {
    if (!site.norm.empty()) names.push_back(site.norm);
  }
  return names;
}

std::vector<std::string> Inputs::readers(const std::string& norm) const {
  std::vector<std::string> names;
  for (const auto& [name, use] : uses_) {
    if (name != norm && sites_[use.site].norm == norm) names.push_back(name);
  }
  return names;
}

}  // namespace braid::quant
