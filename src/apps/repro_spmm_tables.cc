// braid repro spmm --tune --tables FOLDER: the tree of sparse/tree.h grown from published measurements of others, those
// of DA-SpMM on an RTX 3090 (Dai et al., arXiv 2202.08556; github.com/ys-2020/DA-SpMM-LightGBM, folder data). FOLDER
// has
//   train.csv  nnz,mat_size,std_row,N,tag             which of eight algorithms was fastest, without times
//   test.csv   the same columns, other matrices
//   data.csv   0,1,2,3,4,5,6,7,maxval                 speed of each algorithm, a line for each of test.csv
// Algorithms 4 to 7 are 0 to 3 with columns of the features side by side, which with one channel is the same program,
// and with more is almost never the fastest: the four are merged. Matrices are square.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/repro_spmm_tree.h"
#include "io/ordered_json.h"
#include "report/table.h"
#include "sparse/tree.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

constexpr double kTablesGate = 0.975;  // on matrices that the tree was not grown from
constexpr size_t kAlgorithms = 4;
constexpr const char* kNames[kAlgorithms] = {"RB+SR", "RB+PR", "EB+SR", "EB+PR"};
constexpr double kSlower = 2;  // of an algorithm that was not the fastest, in place of the times that are not published

std::vector<double> numbers_of(const std::string& file, int64_t at, const std::string& line, size_t columns) {
  std::vector<double> numbers;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) {
    char* end = nullptr;
    numbers.push_back(std::strtod(cell.c_str(), &end));
    const bool bad = cell.empty() || (*end != 0 && *end != '\r') || !std::isfinite(numbers.back());
    if (bad) fail(file, {.what = fmt::format("line {} is not a row of numbers", at), .got = printable(line)});
  }
  if (numbers.size() != columns)
    fail(file,
         {.what = fmt::format("line {} has {} columns", at, numbers.size()), .expected = std::to_string(columns)});
  return numbers;
}

std::vector<std::vector<double>> table_of(const std::string& file, const std::string& header) {
  std::ifstream in(file);
  std::string line;
  if (!in) fail(file, {.what = "cannot be read"});
  std::getline(in, line);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (line != header) fail(file, {.what = "has other columns", .got = printable(line), .expected = header});
  const auto columns = static_cast<size_t>(std::count(header.begin(), header.end(), ',')) + 1;
  std::vector<std::vector<double>> rows;
  for (int64_t at = 2; std::getline(in, line); ++at) rows.push_back(numbers_of(file, at, line, columns));
  if (rows.empty()) fail(file, {.what = "has no rows"});
  return rows;
}

// The features of row [nnz, mat_size, std_row, N, tag], without times.
sparse::Sample sample_of(const std::string& file, const std::vector<double>& row) {
  const double edges = row[0], nodes = std::sqrt(row[1]), width = row[3];
  if (!(edges > 0 && nodes > 0 && width >= 1 && row[4] >= 0 && row[4] < 2 * kAlgorithms))
    fail(file, {.what = "has a matrix of no size, or no such tag", .got = fmt::format("{}", fmt::join(row, ","))});
  const double mib = nodes * width * 4 / (1 << 20);
  sparse::Sample s{
      .features = {
          .mean = edges / nodes, .spread = row[2] * nodes / edges, .width = width, .x_mib = mib, .y_mib = mib}};
  s.seconds.fill(std::numeric_limits<double>::infinity());
  return s;
}

}  // namespace

int repro_spmm_tables(const std::string& folder, bool json) {
  const std::string columns = "nnz,mat_size,std_row,N,tag", train = folder + "/train.csv", test = folder + "/test.csv";
  std::vector<sparse::Sample> grown_from, tested;
  for (const auto& row : table_of(train, columns)) {
    sparse::Sample& s = grown_from.emplace_back(sample_of(train, row));
    for (size_t k = 0; k < kAlgorithms; ++k)
      s.seconds[k] = static_cast<size_t>(row[4]) % kAlgorithms == k ? 1 : kSlower;
  }
  for (const auto& row : table_of(test, columns)) tested.push_back(sample_of(test, row));
  const auto speeds = table_of(folder + "/data.csv", "0,1,2,3,4,5,6,7,maxval");
  if (speeds.size() != tested.size())
    fail(folder + "/data.csv", {.what = fmt::format("has {} rows, test.csv {}", speeds.size(), tested.size())});
  double oracle = 0;  // logarithm of the best of the four over the best of the eight
  for (size_t i = 0; i < tested.size(); ++i) {
    for (size_t k = 0; k < 2 * kAlgorithms; ++k) {
      if (!(speeds[i][k] > 0)) fail(folder + "/data.csv", {.what = fmt::format("line {} has no speed", i + 2)});
    }
    for (size_t k = 0; k < kAlgorithms; ++k) tested[i].seconds[k] = 1 / speeds[i][k];
    const double best = *std::max_element(speeds[i].begin(), speeds[i].begin() + 2 * kAlgorithms);
    oracle += std::log(1 / (tested[i].seconds[static_cast<size_t>(tested[i].best())] * best));
  }
  oracle = std::exp(oracle / static_cast<double>(tested.size()));
  const std::vector<sparse::Node> tree = sparse::grow(grown_from, sparse::Splits::votes);
  std::vector<int> choices;
  choices.reserve(tested.size());
  for (const sparse::Sample& s : tested) choices.push_back(decide(tree, s.features));
  std::vector<std::pair<std::string, sparse::Regret>> rows = {{"tree", regret_of(tested, choices)}};
  for (size_t k = 0; k < kAlgorithms; ++k)
    rows.emplace_back(std::string("always ") + kNames[k],
                      regret_of(tested, std::vector<int>(tested.size(), static_cast<int>(k))));
  ordered_json all = {{"trained_on", grown_from.size()}, {"tested_on", tested.size()}, {"nodes", tree.size()}};
  report::Table table({{"choice"}, {"of the best of 8", report::Align::right}, {"at worst", report::Align::right}});
  for (const auto& [name, r] : rows) {
    table.row({name, fmt::format("{:.3f}", r.of_best * oracle), fmt::format("{:.2f}", 1 / (1 + r.worst))});
    all[name] = {{"of_best", r.of_best * oracle}, {"at_worst", 1 / (1 + r.worst)}};
  }
  const bool reached = rows[0].second.of_best * oracle >= kTablesGate;
  all["gate"] = {{"of_best", kTablesGate}, {"holds", reached}};
  if (json) {
    fmt::print("{}\n", io::dumped(all, 1));
  } else {
    fmt::print(
        "{} rows, tested on {} of other matrices; a tree of {} nodes\n{}\nSpeed over the best, geometric mean. The "
        "gate, {} of the best: {}.\n",
        grown_from.size(), tested.size(), tree.size(), table.markdown(), kTablesGate,
        reached ? "it holds" : "it does not hold");
  }
  return 0;
}

}  // namespace braid::apps
