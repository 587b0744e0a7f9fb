#include "layout/search.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "sys/error.h"
#include "train/mesh.h"

namespace braid::layout {
namespace {

using Kind = Recompute::Kind;

constexpr std::array<int64_t, 7> kVirtualStages = {1, 2, 3, 4, 6, 8, 12};
constexpr int64_t kAxisMost = 256;  // of the recipe's words

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> list;
  for (int64_t i = 1; i <= std::min(n, kAxisMost); ++i) {
    if (n % i == 0) list.push_back(i);
  }
  return list;
}

// Layouts that pass the trainer's checks.
class Enumeration {
 public:
  Enumeration(const Model& model, const Task& task, int64_t zero_most)
      : model_(model), task_(task), zero_most_(zero_most), recipe_(model.recipe()) {
    recipe_.batch = task.batch;
  }

  void axes() {
    for (const int64_t pp : divisors(task_.ranks)) {
      if (pp > model_.layers()) continue;
      const int64_t stage = task_.ranks / pp;
      for (const int64_t tp : divisors(stage)) {
        for (const int64_t cp : divisors(stage / tp)) {
          for (const bool sp : {false, true}) {
            if (sp && tp == 1) continue;
            experts({.tp = tp, .cp = cp, .pp = pp, .sp = sp}, stage);
          }
        }
      }
    }
  }

  void grids() {
    for (const int64_t x : divisors(task_.ranks)) {
      for (const int64_t y : divisors(task_.ranks / x)) {
        for (const int64_t z : divisors(task_.ranks / (x * y))) {
          // tp and data alone, and with zero = 1
          if (y == 1 && (z == 1 || x * z == task_.ranks)) continue;
          if (z > 1 && zero_most_ == 0) continue;
          train::ParallelRecipe p;
          p.grid = fmt::format("{},{},{},{}", x, y, z, task_.ranks / (x * y * z));
          if (task_.ranks / (x * y * z) <= kAxisMost) offer(p);
        }
      }
    }
  }

  std::vector<train::ParallelRecipe> take() { return std::move(list_); }

 private:
  void experts(train::ParallelRecipe p, int64_t stage) {
    if (!model_.rank(p)) return;
    staged(p, stage);
    if (!model_.has_experts()) return;
    for (const int64_t ep : divisors(stage)) {
      for (const int64_t etp : divisors(stage / ep)) {
        p.ep = ep, p.etp = etp;
        if (p.divides_experts() && model_.rank(p)) staged(p, stage);
      }
    }
  }

  void staged(train::ParallelRecipe p, int64_t stage) {
    for (const int64_t chunks : kVirtualStages) {
      if (chunks > 1 && (p.pp == 1 || chunks * p.pp > model_.layers())) break;
      p.virtual_stages = chunks;
      const bool alone = stage == p.tp && (!p.divides_experts() || stage == p.ep * p.etp);
      for (p.zero = 0; p.zero <= (alone ? 0 : zero_most_); ++p.zero) offer(p);
    }
  }

  void offer(const train::ParallelRecipe& p) {
    if (task_.length < p.cp * (p.sp ? p.tp : 1)) return;  // a rank would have no token of a row
    recipe_.parallel = p;
    recipe_.accumulate = p.virtual_stages > 1 ? p.pp : 1;
    if (!p.grid.empty() && !model_.rank(p)) return;
    try {
      train::check_mesh(recipe_, static_cast<int>(task_.ranks));
    } catch (const Error&) {
      return;
    }
    list_.push_back(p);
  }

  const Model& model_;
  const Task& task_;
  int64_t zero_most_;
  train::Recipe recipe_;
  std::vector<train::ParallelRecipe> list_;
};

// Numbers of parts of `rows` rows: by powers of two of rows in a part.
std::vector<int64_t> parts_of(int64_t rows, const train::ParallelRecipe& p, int64_t micro) {
  std::vector<int64_t> list;
  for (int64_t in_part = micro > 0 ? micro : 1; in_part <= rows; in_part *= 2) {
    const int64_t parts = (rows + in_part - 1) / in_part;
    if (p.virtual_stages == 1 || parts % p.pp == 0) list.push_back(parts);
    if (micro > 0) break;
  }
  if (!list.empty()) return list;
  // Fewer rows than a part is asked for, or no whole groups of parts: as many as give parts of at most `micro` rows.
  const int64_t most = std::max(p.pp, rows / p.pp * p.pp), asked = micro > 0 ? (rows + micro - 1) / micro : most;
  return {p.virtual_stages == 1 ? 1 : std::min(most, (asked + p.pp - 1) / p.pp * p.pp)};
}

bool better(const Choice& a, const Choice& b) {
  if (a.fits != b.fits) return a.fits;
  return a.fits ? a.cost.step < b.cost.step : a.cost.memory.sum() < b.cost.memory.sum();
}

// Layouts that differ in zero alone have the same work.
class Works {
 public:
  Works(const Model& model, const Machine& machine, const Task& task) : model_(model), machine_(machine), task_(task) {}

  const StepWork& of(const Layout& layout) {
    const train::ParallelRecipe& p = layout.parallel;
    Key key{p.tp, p.cp, p.pp, p.ep, p.etp, p.virtual_stages, p.sp, p.grid};
    if (key != key_) known_.clear(), key_ = std::move(key);
    const auto [at, fresh] = known_.try_emplace({layout.parts, layout.recompute});
    if (fresh) at->second = work_of(model_, machine_, task_, layout);
    at->second.layout = layout;
    return at->second;
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, std::string>;
  const Model& model_;
  const Machine& machine_;
  const Task& task_;
  Key key_{};
  std::map<std::pair<int64_t, Kind>, StepWork> known_;
};

Choice best_of(const Model& model, const Machine& machine, const Task& task, const Space& space,
               const train::ParallelRecipe& parallel, Works& works) {
  const int64_t shares = parallel.grid.empty() ? parallel.shares(task.ranks) : task.ranks / parallel.axes().model();
  const int64_t rows = (task.batch + shares - 1) / shares;
  Choice best;
  bool first = true;
  for (const int64_t parts : parts_of(rows, parallel, space.micro)) {
    for (const Kind kind : {Kind::none, Kind::selective, Kind::full}) {
      if (!space.auto_recompute && kind != space.recompute) continue;
      Choice choice{.layout = {.parallel = parallel, .parts = parts, .recompute = kind}};
      const StepWork& work = works.of(choice.layout);
      choice.cost.memory = memory_of(work, task);
      choice.fits = choice.cost.memory.sum() <= machine.device.memory_bytes();
      if (choice.fits) choice.cost = cost_of(model, machine, task, work);
      const bool fits = choice.fits;
      if (first || better(choice, best)) best = std::move(choice);
      first = false;
      if (fits) break;  // recomputing more only takes longer
    }
  }
  if (!best.fits) best.cost = cost_of(model, machine, task, works.of(best.layout));
  return best;
}

}  // namespace

std::vector<train::ParallelRecipe> layouts(const Model& model, const Task& task, const Space& space) {
  Enumeration all(model, task, space.zero_most);
  all.axes();
  if (space.grid) all.grids();
  return all.take();
}

Choice best_of(const Model& model, const Machine& machine, const Task& task, const Space& space,
               const train::ParallelRecipe& parallel) {
  Works works(model, machine, task);
  return best_of(model, machine, task, space, parallel, works);
}

Found find_layouts(const Model& model, const Machine& machine, const Task& task, const Space& space) {
  const std::vector<train::ParallelRecipe> all = layouts(model, task, space);
  if (all.empty())
    fail("plan layout", {.what = "no layout of the ranks is legal",
                         .got = fmt::format("{} ranks, a batch of {}", task.ranks, task.batch),
                         .hint = "fewer --ranks, or a larger --batch"});
  Found found{.legal = std::ssize(all)};
  bool first = true;
  Works works(model, machine, task);
  int64_t done = 0;
  for (const train::ParallelRecipe& p : all) {
    if (space.progress && done++ % 256 == 0) space.progress(done, found.legal);
    Choice choice = best_of(model, machine, task, space, p, works);
    if (choice.fits)
      found.fitting.push_back(std::move(choice));
    else if (first || choice.cost.memory.sum() < found.nearest.cost.memory.sum())
      found.nearest = std::move(choice), first = false;
  }
  std::stable_sort(found.fitting.begin(), found.fitting.end(),
                   [](const Choice& a, const Choice& b) { return a.cost.step < b.cost.step; });
  return found;
}

}  // namespace braid::layout
