#include "core/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <optional>
#include <string_view>

#include "sys/error.h"
#include "sys/memory.h"

namespace braid {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// A node whose outputs may be dropped.
struct Candidate {
  size_t node = 0;
  double bytes = 0;  // saved for backward
  double flops = 0;  // to recompute them, with inputs that are not retained either
  bool cheap = false;

  double worth() const { return bytes / std::max(flops, 1.0); }
};

// Operations to recompute the outputs of a node, with those inputs that are not retained either. Nothing if that would
// reach past the residual stream: where no backward reads it (below the first trained parameter) it is not retained,
// and all earlier blocks would run again.
std::optional<double> flops_of(const Tape& tape, size_t node) {
  double flops = tape.nodes()[node].flops;
  for (const int v : tape.inputs(node)) {
    if (tape.producer(v) < 0 || tape.readers(v) > 0) continue;
    const auto producer = static_cast<size_t>(tape.producer(v));
    if (tape.nodes()[producer].cost == Cost::stream) return std::nullopt;
    const std::optional<double> more = flops_of(tape, producer);
    if (!more) return std::nullopt;
    flops += *more;
  }
  return flops;
}

// Best first.
std::vector<Candidate> candidates(const Tape& tape) {
  std::vector<Candidate> list;
  for (size_t i = 0; i < tape.nodes().size(); ++i) {
    const Tape::Node& node = tape.nodes()[i];
    if (node.once || node.again || node.cost == Cost::stream) continue;
    Candidate c{.node = i};
    for (const int v : tape.outputs(i)) c.bytes += tape.readers(v) > 0 ? static_cast<double>(tape.bytes(v)) : 0.0;
    if (c.bytes == 0) continue;
    const std::optional<double> flops = flops_of(tape, i);
    if (!flops) continue;
    c.flops = *flops;
    const auto inputs = tape.inputs(i);
    c.cheap = node.cost == Cost::cheap && std::all_of(inputs.begin(), inputs.end(), [&](int v) {
                return tape.producer(v) < 0 || tape.readers(v) > 0;
              });
    list.push_back(c);
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Candidate& a, const Candidate& b) { return a.worth() > b.worth(); });
  return list;
}

// Dry forward and backward passes; `plan.dropped` selects what is dropped.
struct Rehearsal {
  const Ctx& real;
  int packings;
  sys::FunctionRef<void(Ctx&, int)> forward;
  Weights weights;

  void operator()(StepPlan& plan, std::vector<Candidate>* list = nullptr) const {
    for (int packing = 0; packing < packings; ++packing) {
      ArenaPlan arena{.dry = true};
      const Counts counts = pass(plan, packing, arena, packing == 0 ? list : nullptr);
      if (packing > 0) {
        plan.arena.cover(arena);  // one with other requests is planned when it runs
        continue;
      }
      plan.arena = std::move(arena);
      plan.flops = counts.flops;
      plan.bytes_moved = static_cast<double>(counts.bytes);
      plan.bytes = plan.arena.bytes_live;
    }
  }

 private:
  Counts pass(const StepPlan& plan, int packing, ArenaPlan& places, std::vector<Candidate>* list) const {
    Arena arena;
    Tape tape;
    std::vector<Choice> choices;
    Ctx ctx{.arena = arena,
            .threads = real.threads,
            .tape = &tape,
            .poison = false,
            .verbose_dispatch = false,
            .forced_rows = real.forced_rows,
            .preferred_rows = real.preferred_rows,
            .dry = &choices};
    tape.drop = [&plan](Cost, size_t node) { return plan.drops(node); };
    arena.begin_pass(places);
    try {
      forward(ctx, packing);
      if (list) *list = candidates(tape);
      tape.backward(ctx, weights);
      tape.backward_weights(ctx);
    } catch (const std::bad_alloc&) {  // not even addresses are left
      fail_larger(arena.bytes_peak());
    }
    tape.clear();
    arena.end_pass();
    places.dry = false;
    return ctx.counts;
  }
};

// The fewest nodes of the list, from its front, that bring the step under the budget.
StepPlan fit(const Rehearsal& rehearse, const std::vector<Candidate>& list, StepPlan plan, int64_t bytes_max) {
  const auto with = [&](size_t count) {
    StepPlan tried;
    tried.dropped.assign(plan.dropped.size(), false);
    for (size_t i = 0; i < count; ++i) tried.dropped[list[i].node] = true;
    rehearse(tried);
    return tried;
  };
  size_t low = 0, high = list.size();
  StepPlan best = with(high);
  if (best.arena.bytes > bytes_max) {
    fail("memory.recompute",
         {.what = fmt::format("a step does not fit {:.3f} GiB", static_cast<double>(bytes_max) / kGiB),
          .got = fmt::format("{:.3f} GiB with everything recomputed", static_cast<double>(best.arena.bytes) / kGiB),
          .hint = "a larger budget, or smaller micro-batches by accumulate"});
  }
  while (low < high) {
    const size_t middle = (low + high) / 2;
    StepPlan tried = with(middle);
    if (tried.arena.bytes <= bytes_max) {
      high = middle;
      best = std::move(tried);
    } else {
      low = middle + 1;
    }
  }
  return best;
}

}  // namespace

Recompute parse_recompute(const std::string& text, const char* where) {
  if (text == "none") return {};
  if (text == "selective") return {.kind = Recompute::Kind::selective};
  if (text == "full") return {.kind = Recompute::Kind::full};
  double gib = 0;
  const std::string_view number = text.starts_with("fit:") ? std::string_view(text).substr(4) : std::string_view();
  const auto end = std::from_chars(number.data(), number.data() + number.size(), gib);
  if (number.empty() || end.ec != std::errc() || end.ptr != number.data() + number.size() || !(gib > 0 && gib < 1e6)) {
    fail(where, {.what = "unknown policy", .got = printable(text), .expected = "none, selective, full, fit:<GiB>"});
  }
  return {.kind = Recompute::Kind::fit, .bytes_max = static_cast<int64_t>(gib * kGiB)};
}

void fail_larger(int64_t bytes) {
  const auto gib = [](int64_t n) { return fmt::format("{:.1f} GiB", static_cast<double>(n) / kGiB); };
  const int64_t free = sys::memory_available();
  fail_environment("memory",
                   {.what = "the run does not fit",
                    .got = bytes < free ? "no more addresses" : gib(free) + " free",
                    .expected = fmt::format("more than {} for the passes of a step", gib(bytes)),
                    .hint = bytes < free ? "a larger ulimit -v, a larger accumulate, or a smaller batch or length"
                                         : "a larger accumulate, or a smaller batch or length"});
}

StepPlan plan_step(const Recompute& policy, const Ctx& ctx, int packings,
                   sys::FunctionRef<void(Ctx&, int packing)> forward, Weights weights) {
  const Rehearsal rehearse{ctx, packings, forward, weights};
  std::vector<Candidate> list;
  StepPlan plan;
  rehearse(plan, &list);
  const double once = plan.flops;
  size_t nodes = 0;
  for (const Candidate& c : list) nodes = std::max(nodes, c.node + 1);
  plan.dropped.assign(nodes, false);
  switch (policy.kind) {
    case Recompute::Kind::none:
      return plan;
    case Recompute::Kind::selective: {
      double left = kSelectiveShare * once;
      for (const Candidate& c : list) {
        if (!c.cheap || c.flops > left) continue;
        plan.dropped[c.node] = true;
        left -= c.flops;
      }
      rehearse(plan);
      break;
    }
    case Recompute::Kind::full:
      for (const Candidate& c : list) plan.dropped[c.node] = true;
      rehearse(plan);
      break;
    case Recompute::Kind::fit:
      if (plan.arena.bytes > policy.bytes_max) plan = fit(rehearse, list, std::move(plan), policy.bytes_max);
      break;
  }
  plan.flops_again = plan.flops - once;
  return plan;
}

}  // namespace braid
