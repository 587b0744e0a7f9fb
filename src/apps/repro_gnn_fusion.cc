// braid repro gnn-fusion: what each rewrite of graph networks saves (src/gnn/rewrites.h): a training step of each model
// on a twin of Reddit cut to size, with one rewrite off after the other: its time over that with all of them on, round
// by round in turns, the bytes that its ops name, and the most memory that its activations take. The loss of every
// variant is printed beside: they compute the same.
//   https://arxiv.org/abs/2110.09524
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "core/philox.h"
#include "gnn/network.h"
#include "graph/generate.h"
#include "io/atomic_file.h"
#include "report/curve.h"
#include "report/table.h"
#include "report/units.h"
#include "sparse/race.h"
#include "train/graph_weights.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

struct FusionArgs {
  int64_t scale = 12, factor = 32, features = 128, hidden = 64, rounds = 7;
  std::string csv, svg;
  bool quick = false, json = false;
};
constexpr int64_t kTwinClasses = 41, kHeads = 4;  // classes of Reddit

float drawn(uint32_t stream, int64_t at) {
  return 2 * uniform(philox({.seed = 1, .stream = stream}, static_cast<uint64_t>(at))[0]) - 1;
}

class FusionStep {
 public:
  FusionStep(const FusionArgs& o, const graph::Graph& graph, gnn::NetworkSpec spec)
      : block_(gnn::block_for(spec.kind, spec.rewrites, graph)), masters_(DType::f32) {
    const std::vector<gnn::LayerParam> shapes = gnn::params_of(spec);
    params_ = train::own_params(masters_, shapes);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const models::MasterTensor& t = masters_.tensors()[i];
      for (int64_t at = 0; at < t.count(); ++at)
        masters_.values()[static_cast<size_t>(t.offset + at)] =
            static_cast<float>(shapes[i].value + shapes[i].bound) * drawn(static_cast<uint32_t>(i + 2), at);
    }
    masters_.round(1);
    network_ = std::make_unique<gnn::Network>(spec, params_);
    for (int64_t i = 0; i < graph.rows() * o.features; ++i) x_.push_back(drawn(0, i));
    for (int64_t i = 0; i < graph.rows(); ++i)
      classes_.push_back(
          static_cast<int32_t>(philox({.seed = 1, .stream = 1}, static_cast<uint64_t>(i))[0] % kTwinClasses));
  }

  void run() {
    ctx_.counts = {};
    masters_.zero_grads(1);
    train::Sums sums;
    nn::StateView none;
    gnn::Run pass{.ctx = ctx_, .seqs = block_.senders, .state = none};
    const gnn::Block* blocks[] = {&block_};
    const auto n = static_cast<int64_t>(classes_.size());
    train::class_loss(ctx_, &tape_,
                      network_->forward(pass, blocks, train::features_of(ctx_, DType::f32, x_, std::ssize(x_) / n)),
                      classes_, n, sums);
    tape_.backward(ctx_);
    tape_.clear();
    loss_ = sums.mean("loss");
  }
  const Counts& counts() const { return ctx_.counts; }
  int64_t memory() const { return arena_.bytes_peak(); }
  double loss() const { return loss_; }

 private:
  gnn::Block block_;
  models::MasterWeights masters_;
  std::vector<Param> params_;
  std::unique_ptr<gnn::Network> network_;
  std::vector<float> x_;
  std::vector<int32_t> classes_;
  Arena arena_;
  Tape tape_;
  Ctx ctx_{.arena = arena_, .threads = 1, .tape = &tape_};
  double loss_ = 0;
};

struct FusionRow {
  std::string model, off;
  double time = 1;  // over that with all on
  Counts counts{};
  int64_t memory = 0;
  double loss = 0;
  bool same = false;  // the rewrite does not apply to this model
};

std::vector<FusionRow> fusion_rows(const FusionArgs& o, const graph::Graph& graph, const char* model) {
  gnn::NetworkSpec spec{.kind = *gnn::kind_of(model),
                        .features = o.features,
                        .hidden = o.hidden,
                        .classes = kTwinClasses,
                        .aggregate = Reduce::mean};
  if (spec.kind == gnn::Kind::gat) spec.heads = kHeads, spec.hidden = o.hidden / kHeads;
  if (spec.kind == gnn::Kind::edgeconv) spec.aggregate = Reduce::max;
  if (spec.kind == gnn::Kind::monet) spec.kernels = 2;
  std::vector<FusionRow> rows;
  std::vector<std::unique_ptr<FusionStep>> steps;
  const auto add = [&](const std::string& off, const gnn::Rewrites& rewrites) {
    spec.rewrites = rewrites;
    rows.push_back({.model = model, .off = off});
    steps.push_back(std::make_unique<FusionStep>(o, graph, spec));
  };
  add("none", {});
  gnn::Rewrites bare;
  for (const gnn::RewriteName& name : gnn::rewrite_names()) {
    gnn::Rewrites one;
    one.*(name.on) = bare.*(name.on) = false;
    add(name.name, one);
  }
  add("fuse and recompute", {.fuse = false, .recompute = false});
  add("all", bare);
  std::vector<std::function<void()>> runs(steps.size());
  for (size_t i = 0; i < runs.size(); ++i) runs[i] = [&step = *steps[i]] { step.run(); };
  for (const auto& run : runs) run();
  const auto seconds = sparse::race(runs, static_cast<int>(o.rounds), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].counts = steps[i]->counts();
    rows[i].memory = steps[i]->memory();
    rows[i].loss = steps[i]->loss();
    rows[i].time = sparse::median_ratio(seconds[i], seconds[0]);
    rows[i].same = i > 0 && rows[i].counts.bytes == rows[0].counts.bytes && rows[i].memory == rows[0].memory &&
                   rows[i].counts.flops == rows[0].counts.flops;
  }
  return rows;
}

std::string csv_of(const std::vector<FusionRow>& rows) {
  std::string text = "model,off,time_ratio,flops,bytes,memory_bytes,loss\n";
  for (const FusionRow& r : rows)
    text += fmt::format("{},{},{:.3f},{:.0f},{},{},{:.6f}\n", r.model, r.off, r.time, r.counts.flops, r.counts.bytes,
                        r.memory, r.loss);
  return text;
}

std::string svg_of(const std::vector<FusionRow>& rows) {
  report::Curve curve{.title = "memory of a step over that with all rewrites (measured)",
                      .x_label = "off: 1 postpone, 2 order, 3 fuse, 4 recompute, 5 first, 6 fuse and recompute, 7 all",
                      .y_label = "times",
                      .log_y = true};
  double base = 1, place = 0;
  for (const FusionRow& r : rows) {
    if (r.off == "none") {
      curve.series.push_back({r.model, {}});
      base = static_cast<double>(r.memory);
      place = 0;
    } else {
      curve.series.back().points.emplace_back(++place, static_cast<double>(r.memory) / base);
    }
  }
  return report::svg(curve);
}

void print_rows(const FusionArgs& o, const graph::Graph& graph, const std::vector<FusionRow>& rows) {
  using report::Align;
  report::Table table({{"model"},
                       {"off"},
                       {"time", Align::right},
                       {"operations", Align::right},
                       {"bytes", Align::right},
                       {"memory", Align::right},
                       {"loss", Align::right}});
  const FusionRow* base = nullptr;
  for (const FusionRow& r : rows) {
    if (r.off == "none") base = &r;
    if (r.same) continue;
    const auto times = [&](double value, double of, const std::string& own) {
      return r.off == "none" ? own : fmt::format("{:.2f}x", value / of);
    };
    table.row({r.model, r.off, times(r.time, 1, "1"),
               times(r.counts.flops, base->counts.flops, fmt::format("{:.2f} G", r.counts.flops / 1e9)),
               times(static_cast<double>(r.counts.bytes), static_cast<double>(base->counts.bytes),
                     report::bytes(r.counts.bytes)),
               times(static_cast<double>(r.memory), static_cast<double>(base->memory), report::bytes(r.memory)),
               fmt::format("{:.4f}", r.loss)});
  }
  fmt::print(
      "{}\nA step of two layers on {}; {} features, {} channels, {} classes, FP32, one thread. Time: CPU time over "
      "that "
      "with all rewrites on, median of {} rounds in turns; bytes: of the operands of its ops, each once; memory: the "
      "most that activations, gradients and workspace take. A rewrite that does not apply has no line.\n",
      table.markdown(), graph::describe(graph::stats_of(graph.in)), o.features, o.hidden, kTwinClasses, o.rounds);
}

int repro_gnn_fusion(FusionArgs o) {
  if (o.quick) o.scale = 7, o.factor = 8, o.features = 24, o.hidden = 16;
  check_range("--scale", o.scale, 1, 20);
  check_range("--factor", o.factor, 1, 1024);
  check_range("--features", o.features, 1, 1 << 16);
  check_range("--hidden", o.hidden, kHeads, 1 << 16);
  check_range("--rounds", o.rounds, 1, 1000);
  if (!o.csv.empty()) io::check_new_file(o.csv, ".csv");
  if (!o.svg.empty()) io::check_new_file(o.svg, ".svg");
  const graph::Graph graph = graph::make_graph(graph::rmat_graph(static_cast<int>(o.scale), o.factor, 1));
  std::vector<FusionRow> rows;
  for (const char* model : {"gcn", "gat", "sage", "gin", "edgeconv", "monet"}) {
    for (FusionRow& row : fusion_rows(o, graph, model)) rows.push_back(std::move(row));
  }
  if (!o.csv.empty()) io::write_text_file(o.csv, csv_of(rows));
  if (!o.svg.empty()) io::write_text_file(o.svg, svg_of(rows));
  if (!o.json) {
    print_rows(o, graph, rows);
    return 0;
  }
  ordered_json list = ordered_json::array();
  for (const FusionRow& r : rows)
    list.push_back({{"model", r.model},
                    {"off", r.off},
                    {"time_ratio", r.time},
                    {"flops", r.counts.flops},
                    {"bytes", r.counts.bytes},
                    {"memory_bytes", r.memory},
                    {"loss", r.loss}});
  fmt::print("{}\n",
             ordered_json({{"nodes", graph.rows()}, {"edges", graph.edges()}, {"rows", std::move(list)}}).dump());
  return 0;
}

}  // namespace

Action setup_repro_gnn_fusion(Cli& cli) {
  auto o = std::make_shared<FusionArgs>();
  cli.option("--scale", o->scale, "2^scale nodes, R-MAT");
  cli.option("--factor", o->factor, "edges drawn per node, before repetitions are dropped");
  cli.option("--features", o->features, "of a node");
  cli.option("--hidden", o->hidden, "channels between the layers; gat has 4 heads of a quarter");
  cli.option("--rounds", o->rounds, "rounds, each of which runs every variant once; medians are over them");
  cli.option("--csv FILE", o->csv, "write the numbers");
  cli.option("--svg FILE", o->svg, "write a plot of the memory");
  cli.flag("--quick", o->quick, "a small graph");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_gnn_fusion(*o); };
}

}  // namespace braid::apps
