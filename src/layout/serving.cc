#include "layout/serving.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "sys/error.h"

namespace braid::layout {
namespace {

using comm::Op;

// A pass of `rows` tokens of `sequences` answers through a layer, `depth` tokens of each before it.
struct Rows {
  double tokens = 1, sequences = 1, depth = 0;
};

struct Pass {
  double seconds = 0, sums = 0;  // sums: of seconds, what ranks add up

  void operator+=(const Pass& other) { seconds += other.seconds, sums += other.sums; }
};

struct BlockNeeds {
  double flops = 0, bytes = 0;  // besides products
  double cache = 0;             // bytes that a sequence of `depth` tokens keeps
};

class Passes {
 public:
  Passes(const RankModel& rank, const Machine& machine, const Answers& task, const train::ParallelRecipe& parallel)
      : rank_(rank), machine_(machine), task_(task), tensor_{static_cast<int>(parallel.tp), 1} {}

  Pass layer(const LayerPart& kind, const Rows& rows) const {
    Pass pass;
    for (const Matrices& p : kind.products) {
      double m = rows.tokens, read = p.count;  // matrices that are read
      if (p.expert) {
        const nn::MoeSpec& moe = *moe_of(kind);
        const double chosen = real(moe.top_k) / real(moe.experts);
        read *= 1 - std::pow(1 - chosen, rows.tokens);
        m = rows.tokens * chosen;
      } else if (p.role == ParamRole::head) {
        m = rows.sequences;
      }
      pass.seconds += time(2 * m * p.rows * p.cols * p.count, 2 * read * p.rows * p.cols + 4 * m * (p.rows + p.cols));
    }
    for (const models::PartSpec& part : kind.parts) {
      const BlockNeeds needs = needs_of(part, rows);
      pass.seconds += time(needs.flops, needs.bytes);
      if (!part.cut || tensor_.size == 1) continue;
      const Call sum{Op::all_reduce, Axis::tensor, 2 * rows.tokens * real(rank_.config.hidden)};
      const double seconds = seconds_of(sum, tensor_, machine_.links);
      pass += {seconds, seconds};
    }
    return pass;
  }

  // Bytes of all sequences at once, at their full length.
  double cache(const LayerPart& kind, double sequences) const {
    double bytes = 0;
    for (const models::PartSpec& part : kind.parts)
      bytes += sequences * needs_of(part, {.depth = real(task_.prompt + task_.answer)}).cache;
    return bytes;
  }

 private:
  static const nn::MoeSpec* moe_of(const LayerPart& kind) {
    for (const models::PartSpec& part : kind.parts) {
      if (const auto* moe = std::get_if<nn::MoeSpec>(&part.block)) return moe;
    }
    return nullptr;
  }
  double time(double flops, double bytes) const {
    return std::max(flops / machine_.device.flops(), bytes / machine_.device.bytes_per_s());
  }
  BlockNeeds needs_of(const models::PartSpec& part, const Rows& rows) const {
    if (const auto* a = std::get_if<nn::AttentionSpec>(&part.block)) {
      const double seen = rows.depth + rows.tokens / std::max(1.0, rows.sequences) / 2;
      const double width = real(2 * a->kv_heads * a->head_dim) * (task_.bf16_cache ? 2 : 4);
      return {.flops = rows.tokens * 4 * real(a->heads * a->head_dim) * seen,
              .bytes = rows.sequences * rows.depth * width,
              .cache = rows.depth * width};
    }
    if (const auto* m = std::get_if<nn::Mamba2Spec>(&part.block)) {
      const double state = 4 * (real(m->inner() * m->state) + real((m->conv_width - 1) * m->conv_channels()));
      return {
          .flops = rows.tokens * 4 * real(m->inner() * m->state), .bytes = 2 * rows.sequences * state, .cache = state};
    }
    return {};
  }

  const RankModel& rank_;
  const Machine& machine_;
  const Answers& task_;
  comm::Groups tensor_;
};

double bytes_of(const LayerPart& part) { return 2 * (part.dense + part.experts); }

}  // namespace

ServingCost serving_cost(const Model& model, const Machine& machine, const Answers& task,
                         const train::ParallelRecipe& parallel) {
  const RankModel& rank = *model.rank(parallel);
  ServingCost cost{.parallel = parallel, .replicas = task.ranks / (parallel.tp * parallel.pp)};
  const double sequences = std::ceil(real(task.batch) / real(cost.replicas)), prompt = real(task.prompt);
  const Passes passes(rank, machine, task, parallel);
  const Rows reading{.tokens = prompt, .sequences = 1},
      writing{.tokens = sequences, .sequences = sequences, .depth = prompt + real(task.answer) / 2};
  const auto through = [&](const Rows& rows, double bytes_of_token) {
    return shift_seconds(rows.tokens * bytes_of_token, static_cast<int>(parallel.tp), machine.links);
  };
  const double width = 2 * real(rank.config.hidden), stages = real(parallel.pp);
  double slowest = 0, whole = 0;
  Pass token;
  const std::vector<Range>& runs = model.runs(parallel.pp);
  for (int64_t s = 0; s < parallel.pp; ++s) {
    Pass read, write;
    double weights = s == 0 ? bytes_of(rank.table) : 0, cache = 0;
    const Range run = runs[static_cast<size_t>(s)];
    for (int64_t i = run.begin; i < run.begin + run.count; ++i) {
      const LayerPart& kind = rank.kinds[model.kinds()[static_cast<size_t>(i)]];
      read += passes.layer(kind, reading), write += passes.layer(kind, writing);
      weights += bytes_of(kind), cache += passes.cache(kind, sequences);
    }
    if (s + 1 == parallel.pp) {
      read += passes.layer(rank.head, reading), write += passes.layer(rank.head, writing);
      weights += bytes_of(rank.head);
      for (const LayerPart& kind : rank.mtp) weights += bytes_of(kind);
      if (s > 0 && (model.config().tied || model.config().mtp)) weights += bytes_of(rank.table);
    }
    slowest = std::max(slowest, read.seconds), whole += read.seconds;
    token += write;
    if (weights + cache > cost.memory()) cost.weights = weights, cost.cache = cache;
  }
  // Prompts follow one another through the stages; a token of all answers waits for each of them.
  const double hops = stages - 1;
  cost.prompts = (sequences - 1) * slowest + whole + (hops > 0 ? hops * through(reading, width) : 0);
  cost.token = token.seconds + (hops > 0 ? hops * through(writing, width) : 0);
  cost.sums = cost.token - (token.seconds - token.sums);
  cost.fits = cost.memory() <= machine.device.memory_bytes();
  return cost;
}

Served find_serving(const Model& model, const Machine& machine, const Answers& task) {
  Served served;
  bool first = true;
  for (int64_t tp = 1; tp <= task.ranks; ++tp) {
    for (int64_t pp = 1; tp * pp <= task.ranks && pp <= model.layers(); ++pp) {
      if (task.ranks % (tp * pp) != 0 || task.ranks / (tp * pp) > task.batch) continue;
      for (const int64_t ep : {int64_t{1}, tp}) {
        const train::ParallelRecipe parallel{.tp = tp, .ep = ep, .pp = pp};
        if ((ep > 1 && !model.has_experts()) || !model.rank(parallel)) continue;
        const ServingCost cost = serving_cost(model, machine, task, parallel);
        ++served.legal;
        if (cost.fits) served.fitting.push_back(cost);
        if (first || cost.memory() < served.nearest.memory()) served.nearest = cost, first = false;
        break;  // whole experts are for widths that do not divide
      }
    }
  }
  if (served.legal == 0)
    fail("plan layout", {.what = "no layout of the ranks is legal",
                         .got = fmt::format("{} ranks, {} answers", task.ranks, task.batch),
                         .hint = "fewer --ranks, or a larger --batch"});
  std::stable_sort(served.fitting.begin(), served.fitting.end(),
                   [&](const ServingCost& a, const ServingCost& b) { return a.all(task) < b.all(task); });
  return served;
}

}  // namespace braid::layout
