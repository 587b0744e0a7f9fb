#include "graph/read_text.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "sys/error.h"

namespace braid::graph {
namespace {

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
      refuse(fmt::format("{} is not a number from {} to {}", what, least, most), std::string(line_.substr(0, 40)));
    line_.remove_prefix(length);
    return value;
  }
  [[noreturn]] void refuse(const std::string& what, const std::string& got) const {
    fail(where_, {.what = fmt::format("line {}: {}", number_, what), .got = printable(got)});
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

TextGraph graph_of_edges(int64_t nodes, std::vector<Edge> edges, const std::string& where) {
  if (std::ssize(edges) > kMost)
    fail(where, {.what = "has too many edges", .expected = fmt::format("at most {}", kMost)});
  TextGraph graph;
  graph.csr = csr_of(nodes, std::move(edges), &graph.removed);
  return graph;
}

constexpr std::string_view kBanner = "%%MatrixMarket";

}  // namespace

bool is_matrix_market(std::string_view text) { return text.starts_with(kBanner); }

TextGraph parse_matrix_market(std::string_view text, const std::string& where) {
  std::string banner(text.substr(0, std::min(text.find('\n'), size_t{200})));
  std::transform(banner.begin(), banner.end(), banner.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto says = [&](const char* word) { return banner.find(word) != std::string::npos; };
  if (!says("matrix coordinate") || says("skew") || says("hermitian") || !(says(" general") || says(" symmetric")))
    fail(where, {.what = "is not a matrix of coordinates",
                 .got = printable(banner),
                 .expected = "%%MatrixMarket matrix coordinate pattern|real|integer general|symmetric"});
  const bool symmetric = says(" symmetric");
  Lines lines(text, where);
  if (!lines.next("%")) fail(where, {.what = "has no sizes", .expected = "a line: rows columns entries"});
  const int64_t nodes = lines.integer(1, most_nodes(text), "rows"), cols = lines.integer(1, kMost, "columns");
  if (nodes != cols) lines.refuse("the matrix is not square", fmt::format("{} x {}", nodes, cols));
  const int64_t entries = lines.integer(0, static_cast<int64_t>(text.size()), "entries");
  std::vector<Edge> edges;
  for (int64_t i = 0; i < entries; ++i) {
    if (!lines.next("%"))
      fail(where, {.what = "ends early", .got = fmt::format("{} entries", i), .expected = std::to_string(entries)});
    const auto row = static_cast<int32_t>(lines.integer(1, nodes, "row") - 1),
               col = static_cast<int32_t>(lines.integer(1, nodes, "column") - 1);
    edges.push_back({col, row});
    if (symmetric) edges.push_back({row, col});
  }
  if (lines.next("%")) lines.refuse("goes on after the last entry", fmt::format("more than {} entries", entries));
  return graph_of_edges(nodes, std::move(edges), where);
}

TextGraph parse_edge_list(std::string_view text, const std::string& where, bool both_ways) {
  Lines lines(text, where);
  std::vector<Edge> edges;
  int64_t nodes = 0;
  while (lines.next("#%")) {
    const auto source = static_cast<int32_t>(lines.integer(0, most_nodes(text) - 1, "source")),
               target = static_cast<int32_t>(lines.integer(0, most_nodes(text) - 1, "target"));
    nodes = std::max<int64_t>(nodes, std::max(source, target) + int64_t{1});
    edges.push_back({source, target});
    if (both_ways) edges.push_back({target, source});
  }
  if (nodes == 0) fail(where, {.what = "has no edges", .expected = "lines: source target"});
  return graph_of_edges(nodes, std::move(edges), where);
}

}  // namespace braid::graph
