// The algorithm of grid.h once more, in FP64: tensors of the engine are FP32 or BF16, so that what its sums round hides
// what a wrong sum of a few terms would change. Logical ranks of every grid of 1, 2, 4, 6, 8 and 64, cut by the
// functions that the engine cuts by (rotated, share_of, random_order), train three layers for three epochs; losses and
// all gradients equal those of one rank to 1e-12.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "gnn/grid.h"
#include "graph/generate.h"
#include "graph/grid_cut.h"

namespace braid::gnn {
namespace {

struct Matrix64 {
  int64_t rows = 0, cols = 0;
  std::vector<double> v = std::vector<double>(static_cast<size_t>(rows * cols));
  double& at(int64_t i, int64_t j) { return v[static_cast<size_t>(i * cols + j)]; }
  double at(int64_t i, int64_t j) const { return v[static_cast<size_t>(i * cols + j)]; }
  Matrix64 part(const Range& r, const Range& c) const {
    Matrix64 m{r.count, c.count};
    for (int64_t i = 0; i < r.count; ++i) {
      for (int64_t j = 0; j < c.count; ++j) m.at(i, j) = at(r.begin + i, c.begin + j);
    }
    return m;
  }
  void put(const Range& r, const Range& c, const Matrix64& m) {
    for (int64_t i = 0; i < r.count; ++i) {
      for (int64_t j = 0; j < c.count; ++j) at(r.begin + i, c.begin + j) = m.at(i, j);
    }
  }
};
// a b, either transposed.
Matrix64 times64(const Matrix64& a, const Matrix64& b, bool ta = false, bool tb = false) {
  const int64_t rows = ta ? a.cols : a.rows, depth = ta ? a.rows : a.cols, cols = tb ? b.rows : b.cols;
  Matrix64 y{rows, cols};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      const double left = ta ? a.at(k, i) : a.at(i, k);
      if (left == 0) continue;  // adjacency is sparse
      for (int64_t j = 0; j < cols; ++j) y.at(i, j) += left * (tb ? b.at(j, k) : b.at(k, j));
    }
  }
  return y;
}

constexpr int64_t kNodes = 70, kLayers = 3, kEpochs = 3;
constexpr std::array<int64_t, kLayers + 1> kWidths = {66, 65, 68, 67};
constexpr double kRate = 0.5;

struct Problem64 {
  Matrix64 a{kNodes, kNodes}, x{kNodes, kWidths[0]};
  std::vector<int64_t> classes{};
  std::vector<Matrix64> weights{}, biases{};
};

double noise(uint64_t stream, int64_t at) {
  return std::sin(12.9898 * static_cast<double>(at + 1) + 78.233 * static_cast<double>(stream + 1));
}

Problem64 problem64() {
  Problem64 p;
  const graph::Csr csr = graph::uniform_graph(kNodes, 200, 3);
  const std::vector<int32_t> positions = graph::positions_of(graph::random_order(kNodes, 5));
  const auto root = [&](int64_t i) { return 1 / std::sqrt(1 + static_cast<double>(csr.degree(i))); };
  const auto place = [&](int64_t i) { return int64_t{positions[static_cast<size_t>(i)]}; };
  for (int64_t i = 0; i < kNodes; ++i) {
    p.a.at(place(i), place(i)) = root(i) * root(i);
    for (int64_t e = csr.rowptr[static_cast<size_t>(i)]; e < csr.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const int64_t j = csr.col[static_cast<size_t>(e)];
      p.a.at(place(i), place(j)) = root(i) * root(j);
    }
    p.classes.push_back(i % 5 == 0 ? -1 : i % kWidths[kLayers]);  // some are not trained on
  }
  for (size_t k = 0; k < p.x.v.size(); ++k) p.x.v[k] = noise(0, static_cast<int64_t>(k));
  for (size_t l = 0; l < kLayers; ++l) {
    Matrix64& w = p.weights.emplace_back(Matrix64{kWidths[l + 1], kWidths[l]});
    for (size_t k = 0; k < w.v.size(); ++k) w.v[k] = 0.2 * noise(l + 1, static_cast<int64_t>(k));
    Matrix64& b = p.biases.emplace_back(Matrix64{1, kWidths[l + 1]});
    for (size_t k = 0; k < b.v.size(); ++k) b.v[k] = 0.1 * noise(l + 9, static_cast<int64_t>(k));
  }
  return p;
}

// What all ranks of a grid have.
class Ranks64 {
 public:
  explicit Ranks64(const GridShape& shape) : shape_(shape) {}
  using Values = std::vector<Matrix64>;

  int64_t count() const { return shape_.ranks(); }
  GridRoles<int64_t> sizes(int64_t layer) const { return rotated<int64_t>(shape_.x, shape_.y, shape_.z, layer); }
  GridRoles<int64_t> place(int64_t rank, int64_t layer) const {
    return rotated<int64_t>(rank / shape_.y % shape_.x, rank % shape_.y, rank / (shape_.x * shape_.y), layer);
  }
  Range share(int64_t n, int64_t rank, int64_t layer, int64_t GridRoles<int64_t>::*axis) const {
    return share_of(n, place(rank, layer).*axis, sizes(layer).*axis);
  }
  // Sums over the ranks that differ along one axis alone; each gets the result of `join` over their values in order.
  template <class Join>
  Values together(const Values& values, int64_t layer, int64_t GridRoles<int64_t>::*axis, Join&& join) const {
    Values all(values.size());
    for (int64_t rank = 0; rank < count(); ++rank) {
      std::vector<const Matrix64*> group;
      for (int64_t other = 0; other < count(); ++other) {
        GridRoles<int64_t> here = place(rank, layer), there = place(other, layer);
        here.*axis = there.*axis = 0;
        if (here.outer == there.outer && here.inner == there.inner && here.depth == there.depth)
          group.push_back(&values[static_cast<size_t>(other)]);
      }
      all[static_cast<size_t>(rank)] = join(group);
    }
    return all;
  }
  Values sum(const Values& values, int64_t layer, int64_t GridRoles<int64_t>::*axis) const {
    return together(values, layer, axis, [](const std::vector<const Matrix64*>& group) {
      Matrix64 all = *group[0];
      for (size_t k = 1; k < group.size(); ++k) {
        for (size_t i = 0; i < all.v.size(); ++i) all.v[i] += group[k]->v[i];
      }
      return all;
    });
  }

 private:
  GridShape shape_;
};

constexpr auto kOuter = &GridRoles<int64_t>::outer;
constexpr auto kInner = &GridRoles<int64_t>::inner;
constexpr auto kDepth = &GridRoles<int64_t>::depth;

struct Epoch64 {
  double loss = 0;
  std::vector<Matrix64> weights{}, biases{};  // gradients
};

// The gradient of the mean cross-entropy by the logits that a rank has, and its share of the loss.
Ranks64::Values loss64(const Ranks64& ranks, const Problem64& p, const Ranks64::Values& logits, double& loss) {
  const int64_t last = kLayers - 1;
  const auto trained =
      static_cast<double>(std::count_if(p.classes.begin(), p.classes.end(), [](int64_t y) { return y >= 0; }));
  Ranks64::Values sums;
  for (const Matrix64& own : logits) {
    Matrix64& s = sums.emplace_back(Matrix64{own.rows, 1});
    for (int64_t i = 0; i < own.rows; ++i) {
      for (int64_t c = 0; c < own.cols; ++c) s.at(i, 0) += std::exp(own.at(i, c));
    }
  }
  sums = ranks.sum(sums, last, kOuter);
  Ranks64::Values slopes;
  loss = 0;
  for (int64_t rank = 0; rank < ranks.count(); ++rank) {
    const Matrix64 &own = logits[static_cast<size_t>(rank)], &sum = sums[static_cast<size_t>(rank)];
    const Range nodes = ranks.share(kNodes, rank, last, kDepth),
                classes = ranks.share(kWidths[kLayers], rank, last, kOuter);
    Matrix64& d = slopes.emplace_back(Matrix64{own.rows, own.cols});
    const bool counts = ranks.place(rank, last).inner == 0;  // the others have copies
    for (int64_t i = 0; i < own.rows; ++i) {
      const int64_t y = p.classes[static_cast<size_t>(nodes.begin + i)];
      if (y < 0) continue;
      for (int64_t c = 0; c < own.cols; ++c) {
        const bool target = classes.begin + c == y;
        d.at(i, c) = (std::exp(own.at(i, c)) / sum.at(i, 0) - (target ? 1 : 0)) / trained;
        if (target && counts) loss += (std::log(sum.at(i, 0)) - own.at(i, c)) / trained;
      }
    }
  }
  return slopes;
}

// One epoch as each rank computes it; gradients are put together from the shards.
Epoch64 epoch64(const Ranks64& ranks, const Problem64& p) {
  const auto n = static_cast<size_t>(ranks.count());
  std::vector<Ranks64::Values> s(kLayers), w(kLayers), y(kLayers);
  Ranks64::Values h(n);
  for (int64_t l = 0; l < kLayers; ++l) {
    const auto at = static_cast<size_t>(l);
    Ranks64::Values part(n);
    for (size_t k = 0; k < n; ++k) {
      const auto rank = static_cast<int64_t>(k);
      const Range rows = ranks.share(kNodes, rank, l, kDepth), cols = ranks.share(kNodes, rank, l, kOuter),
                  in = ranks.share(kWidths[at], rank, l, kInner), out = ranks.share(kWidths[at + 1], rank, l, kOuter);
      if (l == 0) h[k] = p.x.part(cols, in);
      part[k] = times64(p.a.part(rows, cols), h[k]);
      w[at].push_back(p.weights[at].part(out, in));  // gathered over depth
    }
    s[at] = ranks.sum(part, l, kOuter);
    for (size_t k = 0; k < n; ++k) part[k] = times64(s[at][k], w[at][k], false, true);
    y[at] = ranks.sum(part, l, kInner);
    for (size_t k = 0; k < n; ++k) {
      const Range out = ranks.share(kWidths[at + 1], static_cast<int64_t>(k), l, kOuter);
      for (int64_t i = 0; i < y[at][k].rows; ++i) {
        for (int64_t c = 0; c < out.count; ++c) y[at][k].at(i, c) += p.biases[at].at(0, out.begin + c);
      }
      h[k] = y[at][k];
      for (double& value : h[k].v) value = std::max(value, 0.0);
    }
  }
  Epoch64 result;
  Ranks64::Values d = loss64(ranks, p, y[kLayers - 1], result.loss);
  result.weights.resize(kLayers);
  result.biases.resize(kLayers);
  for (int64_t l = kLayers - 1; l >= 0; --l) {
    const auto at = static_cast<size_t>(l);
    Ranks64::Values dw(n), db(n), ds(n);
    for (size_t k = 0; k < n; ++k) {
      dw[k] = times64(d[k], s[at][k], true);
      db[k] = Matrix64{1, d[k].cols};
      for (int64_t i = 0; i < d[k].rows; ++i) {
        for (int64_t c = 0; c < d[k].cols; ++c) db[k].at(0, c) += d[k].at(i, c);
      }
      ds[k] = times64(d[k], w[at][k]);
    }
    dw = ranks.sum(dw, l, kDepth);
    db = ranks.sum(db, l, kDepth);
    result.weights[at] = Matrix64{kWidths[at + 1], kWidths[at]};
    result.biases[at] = Matrix64{1, kWidths[at + 1]};
    for (size_t k = 0; k < n; ++k) {
      const auto rank = static_cast<int64_t>(k);
      const Range block = ranks.share(kWidths[at + 1], rank, l, kOuter), in = ranks.share(kWidths[at], rank, l, kInner),
                  shard = ranks.share(block.count, rank, l, kDepth);
      result.weights[at].put({block.begin + shard.begin, shard.count}, in, dw[k].part(shard, {0, in.count}));
      result.biases[at].put({0, 1}, block, db[k]);
    }
    if (l == 0) break;
    ds = ranks.sum(ds, l, kOuter);
    for (size_t k = 0; k < n; ++k) {
      const auto rank = static_cast<int64_t>(k);
      d[k] = times64(p.a.part(ranks.share(kNodes, rank, l, kDepth), ranks.share(kNodes, rank, l, kOuter)), ds[k], true);
    }
    d = ranks.sum(d, l, kDepth);
    for (size_t k = 0; k < n; ++k) {
      for (size_t i = 0; i < d[k].v.size(); ++i) d[k].v[i] = y[at - 1][k].v[i] > 0 ? d[k].v[i] : 0;
    }
  }
  return result;
}

std::vector<Epoch64> trained64(const GridShape& shape) {
  const Ranks64 ranks(shape);
  Problem64 p = problem64();
  std::vector<Epoch64> epochs;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Epoch64& e = epochs.emplace_back(epoch64(ranks, p));
    for (size_t l = 0; l < kLayers; ++l) {
      for (size_t i = 0; i < p.weights[l].v.size(); ++i) p.weights[l].v[i] -= kRate * e.weights[l].v[i];
      for (size_t i = 0; i < p.biases[l].v.size(); ++i) p.biases[l].v[i] -= kRate * e.biases[l].v[i];
    }
  }
  return epochs;
}

void expect_equal64(const Matrix64& got, const Matrix64& want) {
  ASSERT_EQ(got.v.size(), want.v.size());
  double most = 0;
  for (const double v : want.v) most = std::max(most, std::fabs(v));
  for (size_t i = 0; i < got.v.size(); ++i) ASSERT_NEAR(got.v[i], want.v[i], 1e-12 * most) << i;
}

TEST(GridInFP64, EveryGridTrainsAsOneRankDoes) {
  const std::vector<Epoch64> want = trained64({});
  EXPECT_LT(want.back().loss, want.front().loss);
  for (const int64_t ranks : {2, 4, 6, 8, 64}) {
    for (int64_t x = 1; x <= ranks; ++x) {
      for (int64_t y = 1; y <= ranks; ++y) {
        if (ranks % x != 0 || ranks / x % y != 0) continue;
        SCOPED_TRACE(testing::Message() << x << "," << y << "," << ranks / x / y);
        const std::vector<Epoch64> got = trained64({.x = x, .y = y, .z = ranks / x / y});
        for (size_t e = 0; e < kEpochs; ++e) {
          EXPECT_NEAR(got[e].loss, want[e].loss, 1e-12 * want[e].loss) << e;
          for (size_t l = 0; l < kLayers; ++l) {
            expect_equal64(got[e].weights[l], want[e].weights[l]);
            expect_equal64(got[e].biases[l], want[e].biases[l]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::gnn
