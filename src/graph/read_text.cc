#include "graph/read_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "sys/error.h"

namespace braid::graph {
namespace {

constexpr size_t kQuotedOfLine = 40;  // bytes of a line that an error quotes, about

// Nodes that a short text may declare or name; beyond, at most this many for each of its bytes.
constexpr int64_t kFewNodes = 1 << 20, kNodesPerByte = 8;

class Lines {
 public:
  Lines(std::string_view text, const std::string& where) : rest_(text), where_(where) {}
  // The next line that is not blank and no comment, without its end; false at the end of the text.
  bool next(std::string_view comments) {
    while (!rest_.empty()) {
      const size_t end = rest_.find('\n');
      line_ = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
      ++number_;
      skip_blanks();
      if (!line_.empty() && comments.find(line_[0]) == std::string_view::npos) return true;
    }
    return false;
  }
  // The next number of the line.
  int64_t integer(int64_t least, int64_t most, const char* what) {
    skip_blanks();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(line_.data(), line_.data() + line_.size(), value);
    const auto length = static_cast<size_t>(end - line_.data());
    const bool ends = length == line_.size() || blank(line_[length]);
    if (error != std::errc() || !ends || value < least || value > most)
      refuse(fmt::format("{} is not a number from {} to {}", what, least, most), line_);
    line_.remove_prefix(length);
    return value;
  }
  // Whether the line goes on.
  bool more() {
    skip_blanks();
    return !line_.empty();
  }
  // The next number of the line as a weight.
  float weight() {
    skip_blanks();
    std::string_view digits = line_;
    if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);  // from_chars takes no +
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool ends = end == digits.data() + digits.size() || blank(*end);
    const auto weight = static_cast<float>(value);  // 0 if it is too small
    if (error != std::errc() || !ends || !std::isfinite(weight))
      fail(where_, {.what = fmt::format("line {}: the weight is not a finite number", number_),
                    .got = printable(line_, kQuotedOfLine),
                    .hint = "--unweighted"});
    line_.remove_prefix(static_cast<size_t>(end - line_.data()));
    return weight;
  }
  [[noreturn]] void refuse(const std::string& what, std::string_view got) const {
    fail(where_, {.what = fmt::format("line {}: {}", number_, what), .got = printable(got, kQuotedOfLine)});
  }

 private:
  static bool blank(char c) { return c == ' ' || c == '\t' || c == ',' || c == '\r'; }
  void skip_blanks() {
    while (!line_.empty() && blank(line_[0])) line_.remove_prefix(1);
  }

  std::string_view rest_, line_{};
  const std::string& where_;
  int64_t number_ = 0;
};

int64_t most_nodes(std::string_view text) {
  return std::min(kMost, std::max(kFewNodes, kNodesPerByte * static_cast<int64_t>(text.size())));
}

// What a text says of its edges besides their ends.
struct Reading {
  bool weighted = false;
  bool both_ways = false;
  float mirrored = 1;  // the weight of the other direction over that of the first
};

std::vector<Edge> ends_of(const std::vector<WeightedEdge>& edges) {
  std::vector<Edge> ends;
  ends.reserve(edges.size());
  for (const WeightedEdge& e : edges) ends.push_back({e.source, e.target});
  return ends;
}

TextGraph graph_of_edges(int64_t nodes, std::vector<WeightedEdge> edges, const Reading& r, const std::string& where) {
  const int64_t most = r.both_ways ? kMost / 2 : kMost;
  if (std::ssize(edges) > most)
    fail(where, {.what = "has too many edges", .expected = fmt::format("at most {}", most)});
  const auto csr_from = [&](std::vector<WeightedEdge> list, Repeats repeats, int64_t* removed) {
    return r.weighted ? weighted_csr_of(nodes, std::move(list), where, repeats, removed)
                      : csr_of(nodes, ends_of(list), removed);
  };
  TextGraph graph;
  graph.csr = csr_from(std::move(edges), Repeats::sum, &graph.removed);
  if (!r.both_ways) return graph;
  std::vector<WeightedEdge> all;
  all.reserve(2 * graph.csr.col.size());
  for (int64_t i = 0; i < nodes; ++i) {
    for (int64_t e = graph.csr.rowptr[static_cast<size_t>(i)]; e < graph.csr.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const int32_t source = graph.csr.col[static_cast<size_t>(e)], target = static_cast<int32_t>(i);
      const float weight = graph.csr.weight_of(e);
      all.push_back({source, target, weight});
      all.push_back({target, source, weight * r.mirrored});
    }
  }
  std::vector<float> loop = std::move(graph.csr.loop);
  graph.csr = csr_from(std::move(all), Repeats::agree, nullptr);
  graph.csr.loop = std::move(loop);
  return graph;
}

// The first line in lower case, as words.
std::vector<std::string> banner_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text.substr(0, std::min(text.find('\n'), size_t{200}))) {
    const bool blank = c == ' ' || c == '\t' || c == '\r';
    if (blank && !words.back().empty()) words.emplace_back();
    if (!blank) words.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

}  // namespace

bool is_matrix_market(std::string_view text) {
  const std::vector<std::string> words = banner_of(text);
  return !words.empty() && words[0] == "%%matrixmarket";
}

TextGraph parse_matrix_market(std::string_view text, const std::string& where, Weights weights) {
  const std::vector<std::string> banner = banner_of(text);
  const auto says = [&](size_t at, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), banner[at]) != words.end();
  };
  if (banner.size() != 5 || !says(1, {"matrix"}) || !says(2, {"coordinate"}) ||
      !says(3, {"pattern", "real", "integer"}) || !says(4, {"general", "symmetric", "skew-symmetric"}) ||
      (says(3, {"pattern"}) && says(4, {"skew-symmetric"})))
    fail(where, {.what = "is not a matrix of coordinates",
                 .got = printable(fmt::format("{}", fmt::join(banner, " "))),
                 .expected = "%%MatrixMarket matrix coordinate pattern|real|integer general|symmetric|skew-symmetric"});
  const Reading reading{.weighted = banner[3] != "pattern" && weights == Weights::read,
                        .both_ways = banner[4] != "general",
                        .mirrored = banner[4] == "skew-symmetric" ? -1.0f : 1.0f};
  Lines lines(text, where);
  if (!lines.next("%")) fail(where, {.what = "has no sizes", .expected = "a line: rows columns entries"});
  const int64_t nodes = lines.integer(1, most_nodes(text), "rows"), cols = lines.integer(1, kMost, "columns");
  if (nodes != cols) lines.refuse("the matrix is not square", fmt::format("{} x {}", nodes, cols));
  const int64_t entries = lines.integer(0, static_cast<int64_t>(text.size()), "entries");
  std::vector<WeightedEdge> edges;
  for (int64_t i = 0; i < entries; ++i) {
    if (!lines.next("%"))
      fail(where, {.what = "ends early", .got = fmt::format("{} entries", i), .expected = std::to_string(entries)});
    const auto row = static_cast<int32_t>(lines.integer(1, nodes, "row") - 1),
               col = static_cast<int32_t>(lines.integer(1, nodes, "column") - 1);
    edges.push_back({col, row, reading.weighted ? lines.weight() : 1});
  }
  if (lines.next("%")) lines.refuse("goes on after the last entry", fmt::format("more than {} entries", entries));
  return graph_of_edges(nodes, std::move(edges), reading, where);
}

TextGraph parse_edge_list(std::string_view text, const std::string& where, bool both_ways, int64_t nodes,
                          Weights weights) {
  Lines lines(text, where);
  Reading reading{.both_ways = both_ways};
  std::vector<WeightedEdge> edges;
  while (lines.next("#%")) {
    const auto source = static_cast<int32_t>(lines.integer(0, most_nodes(text) - 1, "source")),
               target = static_cast<int32_t>(lines.integer(0, most_nodes(text) - 1, "target"));
    nodes = std::max<int64_t>(nodes, std::max(source, target) + int64_t{1});
    const bool weighted = weights == Weights::read && lines.more();
    if (edges.empty()) reading.weighted = weighted;
    if (weighted != reading.weighted)
      lines.refuse(weighted ? "has a weight, lines before it have none" : "has no weight, lines before it have one",
                   fmt::format("{} {}", source, target));
    edges.push_back({source, target, weighted ? lines.weight() : 1});
  }
  if (edges.empty()) fail(where, {.what = "has no edges", .expected = "lines: source target"});
  return graph_of_edges(nodes, std::move(edges), reading, where);
}

}  // namespace braid::graph
