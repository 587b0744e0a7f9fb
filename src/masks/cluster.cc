#include "masks/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/philox.h"
#include "masks/pattern.h"
#include "sys/parallel.h"

namespace braid::masks {
namespace {

constexpr int kMeansRounds = 10, kExchangeRounds = 30;

class Search {
 public:
  Search(const ClusterSpec& spec, std::span<const float> scores)
      : spec_(spec),
        scores_(scores),
        groups_((spec.rows + spec.size - 1) / spec.size),
        ones_(static_cast<size_t>(spec.rows)) {
    const std::vector<double> values(scores.begin(), scores.end());
    const double share = std::min(1.0, 2 * spec.density);
    const auto n = static_cast<int64_t>(std::ceil(share * static_cast<double>(scores.size())));
    for (const int64_t i : largest(values, n))
      ones_[static_cast<size_t>(i / spec.cols)].push_back(static_cast<int32_t>(i % spec.cols));
  }

  std::vector<int32_t> best() const {
    Groups order(static_cast<size_t>(spec_.rows));
    for (size_t r = 0; r < order.size(); ++r) order[r] = static_cast<int32_t>(static_cast<int64_t>(r) / spec_.size);
    double most = exchanged(order);
    for (int64_t start = 0; start < spec_.starts && groups_ > 1; ++start) {
      Groups other = means(static_cast<uint32_t>(start));
      const double kept = exchanged(other);
      if (kept > most) {
        most = kept;
        order = std::move(other);
      }
    }
    std::vector<int32_t> rows(order.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
      return order[static_cast<size_t>(a)] < order[static_cast<size_t>(b)];
    });
    return rows;
  }

 private:
  using Groups = std::vector<int32_t>;  // [rows] the group of each

  int64_t size_of(int64_t group) const { return std::min(spec_.size, spec_.rows - group * spec_.size); }
  std::vector<float> centres_of(const Groups& group) const;
  std::vector<float> first_centres(uint32_t start) const;
  Groups assigned(const std::vector<float>& closeness) const;
  Groups means(uint32_t start) const;

  // [rows, groups]: for every row the sum over its elements c of value times weights[c, g]; `each` visits c and value.
  template <class Each>
  std::vector<float> table(const std::vector<float>& weights, const Each& each) const {
    std::vector<float> out(static_cast<size_t>(spec_.rows * groups_));
    sys::parallel_for(spec_.threads, spec_.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* sums = out.data() + r * groups_;
        each(r, [&](int64_t c, float value) {
          const float* w = weights.data() + c * groups_;
          for (int64_t g = 0; g < groups_; ++g) sums[g] += value * w[g];
        });
      }
    });
    return out;
  }

  // The columns that stay, [cols, groups] of 0 and 1, and the sum of what they keep.
  double choose(const Groups& group, std::vector<float>& columns) const;
  bool exchange(Groups& group, const std::vector<float>& kept) const;
  double exchanged(Groups& group) const;

  const ClusterSpec& spec_;
  std::span<const float> scores_;
  int64_t groups_;
  std::vector<std::vector<int32_t>> ones_;  // columns that each row would keep by itself
};

double Search::choose(const Groups& group, std::vector<float>& columns) const {
  std::vector<double> sums(static_cast<size_t>(spec_.cols * groups_));
  for (int64_t r = 0; r < spec_.rows; ++r) {
    const int64_t g = group[static_cast<size_t>(r)];
    for (int64_t c = 0; c < spec_.cols; ++c)
      sums[static_cast<size_t>(c * groups_ + g)] +=
          static_cast<double>(scores_[static_cast<size_t>(r * spec_.cols + c)]);
  }
  const auto size = [&](int64_t i) { return size_of(i % groups_); };
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= static_cast<double>(size(static_cast<int64_t>(i)));
  columns.assign(sums.size(), 0);
  double kept = 0;
  for (const int64_t i : largest_units(sums, elements_of(spec_.density, spec_.rows, spec_.cols), size)) {
    columns[static_cast<size_t>(i)] = 1;
    kept += sums[static_cast<size_t>(i)] * static_cast<double>(size(i));
  }
  return kept;
}

// Every row in turn changes places with the row of another group that gains most, `kept` [rows, groups] being what a
// row keeps in each group.
bool Search::exchange(Groups& group, const std::vector<float>& kept) const {
  const auto in = [&](int64_t r, int64_t g) { return kept[static_cast<size_t>(r * groups_ + g)]; };
  bool changed = false;
  for (int64_t a = 0; a < spec_.rows; ++a) {
    // Above what rounding could pretend, else two rows may change places for ever.
    const int32_t from = group[static_cast<size_t>(a)];
    int64_t with = -1;
    float most = 0;
    for (int64_t b = 0; b < spec_.rows; ++b) {
      const int32_t to = group[static_cast<size_t>(b)];
      if (to == from) continue;
      const float now = in(a, from) + in(b, to), then = in(a, to) + in(b, from);
      if (then - now > most && then - now > 1e-6f * now) {
        most = then - now;
        with = b;
      }
    }
    if (with < 0) continue;
    std::swap(group[static_cast<size_t>(a)], group[static_cast<size_t>(with)]);
    changed = true;
  }
  return changed;
}

// Exchanges until nothing is gained; returns what stays.
double Search::exchanged(Groups& group) const {
  std::vector<float> columns;
  double kept = choose(group, columns);
  for (int round = 0; round < kExchangeRounds; ++round) {
    const std::vector<float> each = table(columns, [&](int64_t r, const auto& visit) {
      for (int64_t c = 0; c < spec_.cols; ++c) visit(c, scores_[static_cast<size_t>(r * spec_.cols + c)]);
    });
    Groups next = group;
    if (!exchange(next, each)) break;
    const double sum = choose(next, columns);
    if (sum <= kept) break;
    kept = sum;
    group = std::move(next);
  }
  return kept;
}

// [cols, groups]
std::vector<float> Search::centres_of(const Groups& group) const {
  std::vector<float> centres(static_cast<size_t>(spec_.cols * groups_));
  for (int64_t r = 0; r < spec_.rows; ++r) {
    const int64_t g = group[static_cast<size_t>(r)];
    for (const int32_t c : ones_[static_cast<size_t>(r)])
      centres[static_cast<size_t>(c * groups_ + g)] += 1 / static_cast<float>(size_of(g));
  }
  return centres;
}

// Rows as centres, each drawn in proportion to its squared distance from those before it (k-means++).
std::vector<float> Search::first_centres(uint32_t start) const {
  std::vector<float> centres(static_cast<size_t>(spec_.cols * groups_));
  std::vector<double> far(static_cast<size_t>(spec_.rows), 1);
  std::vector<uint8_t> is_one(static_cast<size_t>(spec_.cols));
  for (int64_t g = 0; g < groups_; ++g) {
    const RandomKey key{.seed = spec_.seed, .stream = start};
    double point = static_cast<double>(uniform(philox(key, static_cast<uint64_t>(g))[0])) *
                   std::accumulate(far.begin(), far.end(), 0.0);
    size_t chosen = 0;
    while (chosen + 1 < far.size() && (point -= far[chosen]) > 0) ++chosen;
    std::fill(is_one.begin(), is_one.end(), uint8_t{0});
    for (const int32_t c : ones_[chosen]) {
      is_one[static_cast<size_t>(c)] = 1;
      centres[static_cast<size_t>(c * groups_ + g)] = 1;
    }
    for (size_t r = 0; r < far.size(); ++r) {
      int64_t both = 0;
      for (const int32_t c : ones_[r]) both += is_one[static_cast<size_t>(c)];
      const auto apart = static_cast<double>(std::ssize(ones_[r]) + std::ssize(ones_[chosen]) - 2 * both);
      far[r] = g == 0 ? apart : std::min(far[r], apart);
    }
  }
  return centres;
}

// Each row to the closest group that has room; first those whose second choice is the furthest behind.
Search::Groups Search::assigned(const std::vector<float>& closeness) const {
  const auto of = [&](int64_t r, int64_t g) { return closeness[static_cast<size_t>(r * groups_ + g)]; };
  std::vector<float> margin(static_cast<size_t>(spec_.rows));
  for (int64_t r = 0; r < spec_.rows; ++r) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (int64_t g = 0; g < groups_; ++g) {
      second = std::max(second, std::min(first, of(r, g)));
      first = std::max(first, of(r, g));
    }
    margin[static_cast<size_t>(r)] = groups_ > 1 ? first - second : 0;
  }
  std::vector<int64_t> turn(margin.size());
  std::iota(turn.begin(), turn.end(), 0);
  std::stable_sort(turn.begin(), turn.end(), [&](int64_t a, int64_t b) {
    return margin[static_cast<size_t>(a)] > margin[static_cast<size_t>(b)];
  });
  Groups group(margin.size());
  std::vector<int64_t> room;
  for (int64_t g = 0; g < groups_; ++g) room.push_back(size_of(g));
  for (const int64_t r : turn) {
    int64_t best = -1;
    for (int64_t g = 0; g < groups_; ++g) {
      if (room[static_cast<size_t>(g)] > 0 && (best < 0 || of(r, g) > of(r, best))) best = g;
    }
    --room[static_cast<size_t>(best)];
    group[static_cast<size_t>(r)] = static_cast<int32_t>(best);
  }
  return group;
}

Search::Groups Search::means(uint32_t start) const {
  std::vector<float> centres = first_centres(start);
  Groups group;
  for (int round = 0; round < kMeansRounds; ++round) {
    std::vector<float> norms(static_cast<size_t>(groups_));
    for (size_t i = 0; i < centres.size(); ++i) norms[i % norms.size()] += centres[i] * centres[i];
    // 2 x c - |c|^2: the squared distance without the row's own square, negated.
    std::vector<float> closeness = table(centres, [&](int64_t r, const auto& visit) {
      for (const int32_t c : ones_[static_cast<size_t>(r)]) visit(c, 2.0f);
    });
    for (size_t i = 0; i < closeness.size(); ++i) closeness[i] -= norms[i % norms.size()];
    Groups next = assigned(closeness);
    if (next == group) break;
    group = std::move(next);
    centres = centres_of(group);
  }
  return group;
}

}  // namespace

std::vector<int32_t> cluster_rows(const ClusterSpec& spec, std::span<const float> scores) {
  return Search(spec, scores).best();
}

}  // namespace braid::masks
