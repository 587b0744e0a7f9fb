#include "math/grouped_rows.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <span>

#include "codec/codec.h"
#include "math/grouped_kernel.h"
#include "sys/check.h"

namespace braid {
namespace {

constexpr int64_t kHeights[] = {64, 32, 16};  // the larger, the more products a value of x serves
constexpr int64_t kRowsOfPattern = 8;         // on average at least; else the zeros have no structure
constexpr int64_t kLack = 32;                 // a row joins others if it lacks at most one in so many of their values

// Which values of a matrix are not zero, 64 to a word.
struct Bits {
  int64_t words = 0, count = 0;
  std::vector<uint64_t> of{};  // [rows, words]
  std::vector<int64_t> row_count{};

  explicit Bits(const Weight& w) : words((w.cols + 63) / 64), of(static_cast<size_t>(w.rows * words)) {
    for (int64_t r = 0; r < w.rows; ++r) {
      uint64_t* row = of.data() + r * words;
      if (w.spec.format == Format::f32)
        fill(w.codes.as<float>(r), w.cols, row, [](float v) { return v != 0; });
      else
        fill(w.codes.as<Bf16>(r), w.cols, row, [](Bf16 v) { return (v.bits & 0x7fff) != 0; });
      row_count.push_back(std::accumulate(row, row + words, int64_t{0},
                                          [](int64_t n, uint64_t word) { return n + std::popcount(word); }));
      count += row_count.back();
    }
  }
  const uint64_t* row(int64_t r) const { return of.data() + r * words; }
  bool inside(int64_t r, int64_t other) const {
    const uint64_t *a = row(r), *b = row(other);
    for (int64_t i = 0; i < words; ++i) {
      if (a[i] & ~b[i]) return false;
    }
    return true;
  }

 private:
  template <class Num, class Test>
  static void fill(const Num* values, int64_t n, uint64_t* row, const Test& set) {
    for (int64_t c = 0; c < n; ++c) row[c / 64] |= static_cast<uint64_t>(set(values[c])) << (c % 64);
  }
};

using Rows = std::vector<int32_t>;

// Rows whose values lie where those of the first do, by descending number of values: a row of few cannot hide one of
// many. Nothing if there are too many patterns.
std::optional<std::vector<Rows>> patterns(const Bits& bits) {
  const int64_t rows = std::ssize(bits.row_count);
  Rows order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  const auto values = [&](int32_t r) { return bits.row_count[static_cast<size_t>(r)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return values(a) > values(b); });
  std::vector<Rows> found;
  for (const int32_t r : order) {
    const auto joins = [&](const Rows& p) {
      const int64_t own = values(r), theirs = values(p[0]);
      if (own == 0 && theirs > 0) return false;  // a row of zeros is stored with its like
      return theirs - own <= std::max<int64_t>(1, theirs / kLack) && bits.inside(r, p[0]);
    };
    const auto at = std::find_if(found.begin(), found.end(), joins);
    if (at != found.end()) {
      at->push_back(r);
    } else {
      if (std::ssize(found) * kRowsOfPattern > rows) return std::nullopt;
      found.push_back({r});
    }
  }
  for (Rows& p : found) std::sort(p.begin(), p.end());
  return found;
}

// Whole groups of each pattern, then of the rows that are left over; the last is padded with -1.
Rows in_groups(const std::vector<Rows>& patterns, int64_t height) {
  Rows row_of, left;
  for (const Rows& p : patterns) {
    const auto whole = std::ssize(p) / height * height;
    row_of.insert(row_of.end(), p.begin(), p.begin() + whole);
    left.insert(left.end(), p.begin() + whole, p.end());
  }
  row_of.insert(row_of.end(), left.begin(), left.end());
  while (std::ssize(row_of) % height != 0) row_of.push_back(-1);
  return row_of;
}

GroupedRows columns_of(const Weight& w, const Bits& bits, Rows row_of, int64_t height) {
  GroupedRows g{.rows = w.rows, .cols = w.cols, .height = height, .dtype = w.codes.dtype, .row_of = std::move(row_of)};
  std::vector<uint64_t> any(static_cast<size_t>(bits.words));
  g.begin.push_back(0);
  for (size_t first = 0; first < g.row_of.size(); first += static_cast<size_t>(height)) {
    std::fill(any.begin(), any.end(), 0);
    for (size_t i = first; i < first + static_cast<size_t>(height); ++i) {
      for (size_t word = 0; g.row_of[i] >= 0 && word < any.size(); ++word) any[word] |= bits.row(g.row_of[i])[word];
    }
    for (int32_t c = 0; c < static_cast<int32_t>(w.cols); ++c) {
      if (any[static_cast<size_t>(c / 64)] >> (c % 64) & 1) g.columns.push_back(c);
    }
    g.begin.push_back(std::ssize(g.columns));
  }
  return g;
}

template <class Num>
void fill_values(const Weight& w, GroupedRows& g) {
  g.values.resize(g.columns.size() * static_cast<size_t>(g.height) * sizeof(Num));
  auto* out = reinterpret_cast<Num*>(g.values.data());
  for (int64_t group = 0; group < g.groups(); ++group) {
    for (int64_t k = g.begin[static_cast<size_t>(group)]; k < g.begin[static_cast<size_t>(group) + 1]; ++k) {
      for (int64_t i = 0; i < g.height; ++i) {
        const int32_t row = g.row_of[static_cast<size_t>(group * g.height + i)];
        *out++ = row < 0 ? Num{} : w.codes.as<Num>(row)[g.columns[static_cast<size_t>(k)]];
      }
    }
  }
}

int64_t width_of(int64_t tokens, int64_t panel) {
  return grouped::panel_width(std::min(kGroupedTokens, tokens - panel * kGroupedTokens));
}

template <class Num>
void pack_panel(const View& x, int64_t first, int64_t n, int64_t width, float* out) {
  for (int64_t t = 0; t < width; ++t) {
    const Num* row = t < n ? x.as<Num>(first + t) : nullptr;
    for (int64_t c = 0; c < x.dim(1); ++c) {
      if constexpr (std::is_same_v<Num, float>)
        out[c * width + t] = row ? row[c] : 0;
      else
        out[c * width + t] = row ? to_float(row[c]) : 0;
    }
  }
}

// The sums of one token to the places of their rows.
void scatter(std::span<const int32_t> row_of, const float* sums, const View& bias, const MutView& y, int64_t token) {
  const float* b = bias ? bias.as<float>() : nullptr;
  for (size_t i = 0; i < row_of.size(); ++i) {
    const int32_t r = row_of[i];
    if (r < 0) continue;
    const float v = b ? sums[i] + b[r] : sums[i];
    if (y.dtype == DType::f32)
      y.as<float>(token)[r] = v;
    else
      y.as<Bf16>(token)[r] = to_bf16(v);
  }
}

}  // namespace

std::shared_ptr<const GroupedRows> find_groups(const Weight& w, double density_most) {
  const bool plain = codec_of(w).in_place && w.codes.rows_contiguous();
  if (!plain || w.global != 1) return nullptr;
  const Bits bits(w);
  const double all = static_cast<double>(w.rows) * static_cast<double>(w.cols);
  if (static_cast<double>(bits.count) > density_most * all) return nullptr;
  const std::optional<std::vector<Rows>> found = patterns(bits);
  if (!found) return nullptr;
  for (const int64_t height : kHeights) {
    GroupedRows g = columns_of(w, bits, in_groups(*found, height), height);
    const double stored = static_cast<double>(std::ssize(g.columns) * height);
    if (stored > 1.1 * static_cast<double>(bits.count) || stored > density_most * all) continue;
    w.spec.format == Format::f32 ? fill_values<float>(w, g) : fill_values<Bf16>(w, g);
    return std::make_shared<const GroupedRows>(std::move(g));
  }
  return nullptr;
}

int64_t grouped_panels(int64_t tokens) { return (tokens + kGroupedTokens - 1) / kGroupedTokens; }

int64_t grouped_floats(int64_t tokens, int64_t cols) {
  const int64_t panels = grouped_panels(tokens);
  return panels == 0 ? 0 : cols * ((panels - 1) * kGroupedTokens + width_of(tokens, panels - 1));
}

void pack_grouped(const View& x, int64_t panel, float* panels) {
  const int64_t first = panel * kGroupedTokens, n = std::min(kGroupedTokens, x.dim(0) - first);
  float* out = panels + first * x.dim(1);
  if (x.dtype == DType::f32)
    pack_panel<float>(x, first, n, width_of(x.dim(0), panel), out);
  else
    pack_panel<Bf16>(x, first, n, width_of(x.dim(0), panel), out);
}

void grouped_product(const GroupedView& w, int64_t group, const float* panels, int64_t first, int64_t last,
                     const View& bias, const MutView& y) {
  constexpr int64_t kHeightMost = kHeights[0];
  CHECK(w.height <= kHeightMost, "groups of {} rows", w.height);
  alignas(64) float sums[kHeightMost * kGroupedTokens];
  const int64_t begin = w.begin.as<int64_t>()[group], tokens = y.dim(0);
  const std::span row_of(w.row_of.as<int32_t>() + group * w.height, static_cast<size_t>(w.height));
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t token = panel * kGroupedTokens;
    grouped::wide({.values = w.values.data + begin * w.height * size_of(w.values.dtype),
                   .bf16 = w.values.dtype == DType::bf16,
                   .height = w.height,
                   .columns = w.columns.as<int32_t>() + begin,
                   .n = w.begin.as<int64_t>()[group + 1] - begin,
                   .panel = panels + token * w.cols,
                   .width = width_of(tokens, panel),
                   .sums = sums});
    for (int64_t t = token; t < std::min(tokens, token + kGroupedTokens); ++t)
      scatter(row_of, sums + (t - token) * w.height, bias, y, t);
  }
}

}  // namespace braid
