#include "layout/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "layout/layer_work.h"
#include "train/pipeline.h"

namespace braid::layout {
namespace {

int as_int(int64_t n) { return static_cast<int>(n); }

// As train::Mesh numbers ranks: tp (or x, then y) innermost, then cp, then the shares of a batch, then pp.
std::array<comm::Groups, kAxes> groups_of(const train::ParallelRecipe& p, int64_t ranks) {
  const train::Grid g = p.axes();
  const int64_t stage = ranks / p.pp, model = g.model(), experts = p.experts_over();
  std::array<comm::Groups, kAxes> groups{};
  const auto set = [&](Axis axis, int64_t size, int64_t stride) {
    groups[static_cast<size_t>(axis)] = {as_int(size), as_int(stride)};
  };
  set(Axis::tensor, g.x, 1);
  set(Axis::hidden, g.y, g.x);
  set(Axis::context, p.cp, model);
  set(Axis::experts, experts, 1);
  set(Axis::batch, p.grid.empty() ? stage / model : g.z, model);
  set(Axis::copies, p.grid.empty() ? 1 : g.d, model * g.z);
  set(Axis::replicas, p.divides_experts() ? stage / experts : 1, experts);
  set(Axis::pipe, p.pp, stage);
  return groups;
}

// Most parts in flight of every chunk. With one chunk a stage is as many parts ahead as there are stages behind it.
std::vector<double> in_flight(const train::PipelineShape& shape, int64_t stage) {
  if (shape.chunks == 1) return {static_cast<double>(std::min(shape.parts, shape.stages - stage))};
  // Parts beyond a few groups repeat the same order.
  train::PipelineShape few = shape;
  few.parts = std::min(shape.parts, 4 * shape.stages);
  const std::vector<train::PipelinePass> passes = train::pipeline_passes(few, stage);
  std::vector<double> most;
  for (int64_t chunk = 0; chunk < shape.chunks; ++chunk)
    most.push_back(static_cast<double>(train::parts_in_flight(passes, chunk)));
  return most;
}

void add_stages(const Model& model, StepWork& work, size_t table, size_t head) {
  const train::ParallelRecipe& p = work.layout.parallel;
  const train::PipelineShape shape{.stages = p.pp, .chunks = p.virtual_stages, .parts = work.layout.parts};
  const std::vector<Range>& runs = model.runs(shape.stages * shape.chunks);
  const bool shared = model.config().tied || model.config().mtp;
  for (int64_t s = 0; s < shape.stages; ++s) {
    StageWork stage{.in_flight = in_flight(shape, s)};
    const auto take = [&](size_t index, bool of_layer) {
      const LayerWork& layer = work.layers[index];
      stage.dense += layer.dense, stage.experts += layer.experts;
      if (of_layer) {
        stage.dense_layer = std::max(stage.dense_layer, layer.dense);
        stage.experts_layer = std::max(stage.experts_layer, layer.experts);
      } else {
        stage.rest += layer.dense, stage.rest_experts += layer.experts;
      }
    };
    for (int64_t c = 0; c < shape.chunks; ++c) {
      std::vector<size_t>& chunk = stage.chunks.emplace_back();
      const Range run = runs[static_cast<size_t>(c * shape.stages + s)];
      if (s == 0 && c == 0) chunk.push_back(table), take(table, false);
      for (int64_t i = run.begin; i < run.begin + run.count; ++i)
        chunk.push_back(model.kinds()[static_cast<size_t>(i)]), take(chunk.back(), true);
      if (s + 1 == shape.stages && c + 1 == shape.chunks) chunk.push_back(head), take(head, false);
    }
    if (s > 0 && s + 1 == shape.stages && shared)
      stage.dense += work.layers[table].dense, stage.rest += work.layers[table].dense;
    work.stages.push_back(std::move(stage));
  }
}

}  // namespace

const char* name_of(Axis axis) {
  constexpr const char* kNames[kAxes] = {"tp", "y", "cp", "ep", "dp", "d", "edp", "pp"};
  return kNames[static_cast<size_t>(axis)];
}

std::string name_of(Recompute::Kind kind) {
  return kind == Recompute::Kind::full ? "full" : kind == Recompute::Kind::selective ? "selective" : "none";
}

std::string name_of(const Layout& layout, int64_t ranks) {
  const train::ParallelRecipe& p = layout.parallel;
  if (!p.grid.empty()) return fmt::format("grid {}", p.grid);
  std::string text = fmt::format("dp {}", p.shares(ranks));
  const auto add = [&](const char* word, int64_t n) {
    if (n > 1) text += fmt::format(" {} {}", word, n);
  };
  add("tp", p.tp);
  if (p.sp) text += " sp";
  add("cp", p.cp);
  add("pp", p.pp);
  add("vs", p.virtual_stages);
  if (p.divides_experts()) text += fmt::format(" ep {}", p.ep), add("etp", p.etp);
  if (p.zero > 0) text += fmt::format(" zero {}", p.zero);
  return text;
}

double bytes_sent(const Call& call, const comm::Groups& group) {
  if (group.size == 1) return 0;
  const double others = group.size - 1, share = others / group.size;
  return call.op == comm::Op::all_reduce ? 2 * share * call.bytes : share * call.bytes;
}

StepWork work_of(const Model& model, const Machine& machine, const Task& task, const Layout& layout) {
  const train::ParallelRecipe& p = layout.parallel;
  StepWork work{.layout = layout, .ranks = task.ranks, .groups = groups_of(p, task.ranks)};
  const int64_t shares = p.grid.empty() ? p.shares(task.ranks) : task.ranks / p.axes().model();
  const int64_t rows = (task.batch + shares - 1) / shares, part = (rows + layout.parts - 1) / layout.parts;
  work.tokens = static_cast<double>(part) * static_cast<double>(task.length) / static_cast<double>(p.cp);
  const RankModel& rank = *model.rank(p);
  const LayerCosting costing(model, rank, machine.device, task, layout, work.tokens);
  for (const LayerPart& kind : rank.kinds) work.layers.push_back(costing.layer(kind));
  const size_t table = work.layers.size(), head = table + 1;
  work.layers.push_back(costing.table());
  work.layers.push_back(costing.head());
  const double sharing = p.sp ? static_cast<double>(p.tp) : 1;
  work.hop_bytes = (task.bf16_sums ? 2 : 4) * work.tokens * static_cast<double>(rank.config.hidden) / sharing;
  add_stages(model, work, table, head);
  return work;
}

}  // namespace braid::layout
