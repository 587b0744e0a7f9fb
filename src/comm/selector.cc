#include "comm/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "comm/sim.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/nearest.h"

namespace braid::comm {
namespace {

constexpr size_t kLinesMost = 20'000, kPointsMost = 512;
constexpr size_t kFields = 6;
constexpr double kGamma = 0.125;  // kernels fall to 1/e^(1/2) over two doublings

using Point = std::tuple<int, int, int64_t>;  // nodes, ranks of one, bytes
using Times = std::map<std::string, double>;

Features features_of(const Point& p) {
  const auto& [nodes, per_node, bytes] = p;
  return {std::log2(static_cast<double>(std::max<int64_t>(bytes, 1))), std::log2(nodes), std::log2(per_node)};
}

Point point_of(const Problem& p) { return {p.nodes(), p.per_node, p.blocks.total() * p.element}; }

// With the algorithms that were timed there.
Problem problem_at(Op op, const Point& point, const Times& times) {
  const auto& [nodes, per_node, bytes] = point;
  Problem p = problem_of({.op = op, .type = DType::u8, .count = bytes}, 0, nodes * per_node, per_node);
  p.alone = times.contains("native_blocking");
  p.native = p.alone || times.contains("native");
  return p;
}

std::map<Point, Times> by_point(std::span<const TimedCall> calls) {
  std::map<Point, Times> points;
  for (const TimedCall& c : calls) points[{c.nodes, c.per_node, c.bytes}][c.algorithm] = c.us;
  return points;
}

double least(const Times& times) {
  double us = std::numeric_limits<double>::infinity();
  for (const auto& [name, own] : times) us = std::min(us, own);
  return us;
}

// Those that every point has.
std::vector<std::string> common_algorithms(const std::map<Point, Times>& points) {
  std::vector<std::string> names;
  for (const auto& first : points.begin()->second) {
    const std::string& name = first.first;
    if (std::all_of(points.begin(), points.end(), [&](const auto& p) { return p.second.contains(name); }))
      names.push_back(name);
  }
  return names;
}

template <class Number>
Number number_in(const std::string& where, const char* what, std::string_view text, Number least, Number most) {
  Number n{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || rest != text.data() + text.size() || !(n >= least && n <= most))
    fail(where, {.what = fmt::format("{} is out of range", what),
                 .got = printable(text),
                 .expected = fmt::format("a number from {} to {}", least, most)});
  return n;
}

Op op_in(const std::string& where, std::string_view text) {
  for (const Op op : {Op::broadcast, Op::reduce, Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::all_to_all}) {
    if (text == name_of(op)) return op;
  }
  fail(where,
       {.what = "is not an operation that can be chosen for", .got = printable(text), .expected = "all_reduce, ..."});
}

TimedCall call_in(const std::string& where, std::string_view line) {
  std::array<std::string_view, kFields> fields;
  for (size_t i = 0; i < kFields; ++i) {
    const size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == kFields))
      fail(where, {.what = "has another number of fields", .expected = kTimesHeader});
    fields[i] = line.substr(0, comma);
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  }
  TimedCall call{.op = op_in(where, fields[0]), .algorithm = std::string(fields[4])};
  call.nodes = number_in(where, "nodes", fields[1], 1, 1 << 16);
  call.per_node = number_in(where, "per_node", fields[2], 1, 1 << 10);
  call.bytes = number_in<int64_t>(where, "bytes", fields[3], 0, int64_t{1} << 50);
  const std::vector<std::string> names = algorithm_names(call.op);
  if (std::find(names.begin(), names.end(), call.algorithm) == names.end())
    fail(where, {.what = fmt::format("{} has no such algorithm", name_of(call.op)),
                 .got = printable(call.algorithm),
                 .hint = sys::nearest(call.algorithm, names)});
  call.us = number_in(where, "us", fields[5], 1e-6, 1e15);
  return call;
}

}  // namespace

std::vector<TimedCall> read_times(std::string_view where, std::string_view csv) {
  std::vector<TimedCall> calls;
  std::set<std::tuple<Op, int, int, int64_t, std::string>> seen;
  for (size_t number = 1; !csv.empty(); ++number) {
    const size_t end = csv.find('\n');
    std::string_view line = csv.substr(0, end);
    csv.remove_prefix(end == std::string_view::npos ? csv.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string at = fmt::format("{}:{}", printable(where), number);
    if (number == 1) {
      if (line != kTimesHeader)
        fail(at, {.what = "is not a table of timed calls",
                  .got = printable(line.substr(0, 80)),
                  .expected = kTimesHeader,
                  .hint = "braid comm tune -o FILE"});
      continue;
    }
    if (line.empty()) continue;
    if (calls.size() == kLinesMost)
      fail(at, {.what = "has too many lines", .expected = fmt::format("at most {}", kLinesMost)});
    const TimedCall& call = calls.emplace_back(call_in(at, line));
    if (!seen.emplace(call.op, call.nodes, call.per_node, call.bytes, call.algorithm).second)
      fail(at, {.what = "the same call again", .got = printable(line)});
  }
  if (calls.empty()) fail(where, {.what = "has no timed calls", .hint = "braid comm tune -o FILE"});
  return calls;
}

std::string times_csv(std::span<const TimedCall> calls) {
  std::string text = fmt::format("{}\n", kTimesHeader);
  for (const TimedCall& c : calls)
    text += fmt::format("{},{},{},{},{},{:.3f}\n", name_of(c.op), c.nodes, c.per_node, c.bytes, c.algorithm, c.us);
  return text;
}

// What was learnt of one operation: a score of each algorithm at a point, the least first.
class Selector::OfOp {
 public:
  OfOp(Op op, const std::map<Point, Times>& points, Learner learner);
  Op op() const { return op_; }
  const Algorithm* choose(const Problem& problem) const;

 private:
  struct Vote {
    size_t plus, minus;  // algorithms
    Svm svm;
  };
  void learn_costs(const std::vector<Features>& at, const std::map<Point, Times>& points);
  void learn_votes(const std::vector<Features>& at, const std::map<Point, Times>& points);
  std::vector<double> scores(const Features& x) const;

  Op op_;
  std::vector<std::string> names_;
  std::vector<Ridge> costs_;
  std::vector<Vote> votes_;
  std::optional<size_t> always_;  // the fastest at every point
};

Selector::OfOp::OfOp(Op op, const std::map<Point, Times>& points, Learner learner)
    : op_(op), names_(common_algorithms(points)) {
  if (points.size() > kPointsMost)
    fail(name_of(op), {.what = "was timed at too many points",
                       .got = std::to_string(points.size()),
                       .expected = fmt::format("at most {}", kPointsMost)});
  if (names_.empty())
    fail(name_of(op), {.what = "no algorithm was timed at every point", .hint = "braid comm tune -o FILE"});
  std::vector<Features> at;
  at.reserve(points.size());
  for (const auto& [point, times] : points) at.push_back(features_of(point));
  learner == Learner::costs ? learn_costs(at, points) : learn_votes(at, points);
}

void Selector::OfOp::learn_costs(const std::vector<Features>& at, const std::map<Point, Times>& points) {
  for (const std::string& name : names_) {
    std::vector<double> values;
    values.reserve(points.size());
    for (const auto& [point, times] : points) values.push_back(std::log(times.at(name)));
    costs_.emplace_back(at, values, kGamma);
  }
}

void Selector::OfOp::learn_votes(const std::vector<Features>& at, const std::map<Point, Times>& points) {
  std::vector<size_t> best;
  for (const auto& point : points) {
    const Times& times = point.second;
    const auto faster = [&](const std::string& a, const std::string& b) { return times.at(a) < times.at(b); };
    best.push_back(static_cast<size_t>(std::min_element(names_.begin(), names_.end(), faster) - names_.begin()));
  }
  const std::set<size_t> classes(best.begin(), best.end());
  if (classes.size() == 1) always_ = *classes.begin();
  for (const size_t plus : classes) {
    for (const size_t minus : classes) {
      if (minus <= plus) continue;
      std::vector<Features> x;
      std::vector<int> sides;
      for (size_t i = 0; i < best.size(); ++i) {
        if (best[i] != plus && best[i] != minus) continue;
        x.push_back(at[i]);
        sides.push_back(best[i] == plus ? 1 : -1);
      }
      votes_.push_back({plus, minus, Svm(x, sides, kGamma)});
    }
  }
}

std::vector<double> Selector::OfOp::scores(const Features& x) const {
  std::vector<double> scores(names_.size(), 0);
  for (size_t i = 0; i < costs_.size(); ++i) scores[i] = costs_[i].at(x);
  for (const Vote& vote : votes_) scores[vote.svm.margin(x) > 0 ? vote.plus : vote.minus] -= 1;
  if (always_) scores[*always_] = -1;
  return scores;
}

const Algorithm* Selector::OfOp::choose(const Problem& problem) const {
  const std::vector<double> score = scores(features_of(point_of(problem)));
  const Algorithm* best = nullptr;
  double lowest = std::numeric_limits<double>::infinity();
  for (const Algorithm& a : every_algorithm()) {
    const auto name = std::find(names_.begin(), names_.end(), a.name);
    if (a.op != op_ || name == names_.end() || a.refuses(problem)) continue;
    const double own = score[static_cast<size_t>(name - names_.begin())];
    if (own < lowest) lowest = own, best = &a;
  }
  return best;
}

Selector::Selector(std::span<const TimedCall> calls, Learner learner) {
  if (learner == Learner::table) return;
  std::map<Op, std::vector<TimedCall>> by_op;
  for (const TimedCall& c : calls) by_op[c.op].push_back(c);
  for (const auto& [op, own] : by_op) ops_.push_back(std::make_unique<OfOp>(op, by_point(own), learner));
}

Selector::~Selector() = default;

const Algorithm& Selector::choose(const Problem& problem) const {
  if (problem.per_node == 0 || !problem.uniform) return algorithm_for(problem, "");
  const auto& [nodes, per_node, bytes] = point_of(problem);
  const auto [at, fresh] = known_.try_emplace({problem.op, nodes, per_node, bytes});
  if (!fresh) return *at->second;
  at->second = &algorithm_for(problem, "");
  for (const auto& of_op : ops_) {
    if (of_op->op() != problem.op) continue;
    if (const Algorithm* a = of_op->choose(problem)) at->second = a;
  }
  return *at->second;
}

namespace {

Regret regret_of(Op op, const std::map<Point, Times>& held_out, const Selector& selector) {
  Regret r;
  for (const auto& [point, times] : held_out) {
    const std::string chosen = selector.choose(problem_at(op, point, times)).name;
    const auto us = times.find(chosen);
    CHECK(us != times.end(), "{} was not timed", chosen);
    const double lost = us->second / least(times) - 1;
    r.mean += lost;
    r.worst = std::max(r.worst, lost);
    r.right += lost < 1e-3 ? 1 : 0;
    ++r.points;
  }
  if (r.points > 0) r.mean /= r.points, r.right /= r.points;
  return r;
}

// Learns from the calls that `held` is false for.
template <class Held>
Regret regret_where(std::span<const TimedCall> calls, Learner learner, const Held& held) {
  std::vector<TimedCall> known, unknown;
  for (const TimedCall& c : calls) (held(c) ? unknown : known).push_back(c);
  if (known.empty() || unknown.empty()) return {};
  return regret_of(calls[0].op, by_point(unknown), Selector(known, learner));
}

}  // namespace

Regret regret_on_held_out(std::span<const TimedCall> calls, Learner learner) {
  std::set<int> nodes;
  std::set<int64_t> sizes;
  for (const TimedCall& c : calls) nodes.insert(c.nodes), sizes.insert(c.bytes);
  return regret_where(calls, learner, [&](const TimedCall& c) {
    const auto row = std::distance(nodes.begin(), nodes.find(c.nodes));
    return (row + std::distance(sizes.begin(), sizes.find(c.bytes))) % 2 == 1;
  });
}

Regret regret_on_new_nodes(std::span<const TimedCall> calls, Learner learner) {
  std::set<int> nodes;
  for (const TimedCall& c : calls) nodes.insert(c.nodes);
  Regret all;
  for (const int n : nodes) {
    const Regret own = regret_where(calls, learner, [&](const TimedCall& c) { return c.nodes == n; });
    all.mean += own.mean * own.points;
    all.right += own.right * own.points;
    all.worst = std::max(all.worst, own.worst);
    all.points += own.points;
  }
  if (all.points > 0) all.mean /= all.points, all.right /= all.points;
  return all;
}

}  // namespace braid::comm
