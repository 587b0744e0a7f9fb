#include "graph/csr.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sys/error.h"

namespace braid::graph {

View Csr::ids_view(const std::vector<int32_t>& ids) {
  static constexpr int32_t kNone = 0;
  return view_of(ids.empty() ? &kNone : ids.data(), {std::ssize(ids)});
}

void check(const Csr& csr, std::string_view where) {
  const auto bad = [&](int64_t row, const char* what, const std::string& got, const std::string& expected) {
    fail(where, {.what = fmt::format("row {} of the graph {}", row, what), .got = got, .expected = expected});
  };
  CHECK(std::ssize(csr.rowptr) == csr.rows + 1, "{} row pointers, {} rows", csr.rowptr.size(), csr.rows);
  if (csr.rowptr.front() != 0) bad(0, "does not start at edge 0", std::to_string(csr.rowptr.front()), "rowptr[0] = 0");
  for (size_t i = 0; i < static_cast<size_t>(csr.rows); ++i) {
    const int64_t begin = csr.rowptr[i], end = csr.rowptr[i + 1], row = static_cast<int64_t>(i);
    if (end < begin) bad(row, "ends before it begins", fmt::format("rowptr {} then {}", begin, end), "no fall");
    if (end > csr.edges())
      bad(row, "ends beyond the last edge", std::to_string(end), fmt::format("at most {}", csr.edges()));
    for (int64_t e = begin; e < end; ++e) {
      const int32_t source = csr.col[static_cast<size_t>(e)];
      if (source < 0 || source >= csr.cols)
        bad(row, "names a node that does not exist", std::to_string(source), fmt::format("0 to {}", csr.cols - 1));
      if (e > begin && source < csr.col[static_cast<size_t>(e) - 1])
        bad(row, "is not sorted", fmt::format("{} after {}", source, csr.col[static_cast<size_t>(e) - 1]),
            "ascending sources");
    }
  }
  if (csr.rowptr.back() != csr.edges())
    bad(csr.rows - 1, "ends before the last edge", std::to_string(csr.rowptr.back()), std::to_string(csr.edges()));
  if (csr.weight.empty()) return;
  CHECK(csr.weight.size() == csr.col.size(), "{} weights, {} edges", csr.weight.size(), csr.col.size());
  const auto odd = std::find_if(csr.weight.begin(), csr.weight.end(), [](float w) { return !std::isfinite(w); });
  if (odd != csr.weight.end())
    fail(where, {.what = fmt::format("the weight of edge {} is not finite", odd - csr.weight.begin()),
                 .got = fmt::format("{}", *odd)});
}

void sort_last_row(Csr& csr, int64_t begin) {
  if (csr.weight.empty()) {
    std::sort(csr.col.begin() + begin, csr.col.end());
    return;
  }
  std::vector<std::pair<int32_t, float>> edges;
  for (auto e = static_cast<size_t>(begin); e < csr.col.size(); ++e) edges.emplace_back(csr.col[e], csr.weight[e]);
  std::stable_sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t k = 0; k < edges.size(); ++k) {
    csr.col[static_cast<size_t>(begin) + k] = edges[k].first;
    csr.weight[static_cast<size_t>(begin) + k] = edges[k].second;
  }
}

RowStats stats_of(const Csr& csr) {
  RowStats s{.rows = csr.rows, .edges = csr.edges()};
  double squares = 0;
  for (int64_t i = 0; i < csr.rows; ++i) {
    const int64_t degree = csr.degree(i);
    s.most = std::max(s.most, degree);
    s.empty += degree == 0 ? 1 : 0;
    squares += static_cast<double>(degree) * static_cast<double>(degree);
  }
  if (csr.rows == 0) return s;
  const auto n = static_cast<double>(csr.rows);
  s.mean = static_cast<double>(s.edges) / n;
  s.deviation = std::sqrt(std::max(0.0, squares / n - s.mean * s.mean));
  s.spread = s.mean > 0 ? s.deviation / s.mean : 0;
  // A hundredth of the rows cannot have more than a hundred times the mean.
  const auto last = std::min(s.most, static_cast<int64_t>(100 * s.mean) + 1);
  std::vector<int64_t> rows(static_cast<size_t>(last) + 1);  // by degree
  for (int64_t i = 0; i < csr.rows; ++i) ++rows[static_cast<size_t>(std::min(csr.degree(i), last))];
  for (int64_t below = rows[0]; 100 * below < 99 * s.rows; below += rows[static_cast<size_t>(s.p99)]) ++s.p99;
  return s;
}

std::string describe(const RowStats& s) {
  return fmt::format(
      "{} nodes, {} edges, degrees up to {} (99%: {}), mean {:.1f}, spread {:.1f}, {} nodes without incoming edges",
      s.rows, s.edges, s.most, s.p99, s.mean, s.spread, s.empty);
}

std::string describe_weights(const Csr& csr) {
  const auto [least, most] = std::minmax_element(csr.weight.begin(), csr.weight.end());
  return fmt::format("weights from {:.6g} to {:.6g}", *least, *most);
}

uint64_t fingerprint(const Csr& csr) {
  uint64_t hash = 0;
  // The finaliser of splitmix64 (Steele, Lea, Flood 2014) over a running sum.
  const auto mix = [&hash](uint64_t word) {
    hash += word + 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  };
  mix(static_cast<uint64_t>(csr.rows));
  mix(static_cast<uint64_t>(csr.cols));
  for (const int64_t p : csr.rowptr) mix(static_cast<uint64_t>(p));
  for (const int32_t c : csr.col) mix(static_cast<uint64_t>(c));
  return hash;
}

}  // namespace braid::graph
