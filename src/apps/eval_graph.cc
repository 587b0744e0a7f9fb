#include "apps/eval_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "apps/model_args.h"
#include "apps/recipe_paths.h"
#include "apps/result.h"
#include "gnn/network.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "sys/error.h"
#include "train/checkpoint.h"
#include "train/graphs.h"
#include "train/links.h"
#include "train/nodes.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

// The recipe of the run that wrote the folder: its own if it is a checkpoint, that of the last one if it is the run's
// or inside it. Without one, what config.json says.
train::Recipe recipe_of(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> places = {folder};
  for (const fs::path& run : {folder, fs::absolute(folder).lexically_normal().parent_path()}) {
    const std::vector<fs::path> checkpoints = train::list_checkpoints(run);
    if (!checkpoints.empty()) places.push_back(checkpoints.back());
  }
  for (const fs::path& place : places) {
    if (const fs::path file = place / "training" / "recipe.toml"; fs::is_regular_file(file, none))
      return train::read_recipe(file, {});
  }
  train::Recipe recipe;
  recipe.objective = "graph";
  recipe.dtype = "f32";
  const io::Json config = io::Json::read(folder / "config.json");
  train::GraphRecipe& g = recipe.graph;
  g.model = config.need({"model"}).as_string();
  g.task = config.need({"task"}).as_string();
  g.readout = config.string_of({"readout"}).value_or(g.readout);
  g.aggregate = config.string_of({"aggregate"}).value_or(g.aggregate);
  g.layers = config.need({"layers"}).as_int({1, 1000});
  g.hidden = config.need({"hidden"}).as_int({1, 1 << 20});
  g.heads = config.int_of({"heads"}, {1, 1024}).value_or(g.heads);
  g.kernels = config.int_of({"kernels"}, {0, 1024}).value_or(g.kernels);
  g.eps = config.number_of({"eps"}).value_or(g.eps);
  return recipe;
}

// Before the network is loaded, which would say that its weights do not fit.
void check_width(const fs::path& folder, const std::string& path) {
  const auto known = io::Json::read(folder / "config.json").int_of({"features"}, {1, 1 << 20});
  std::error_code none;
  if (!known || !fs::is_regular_file(path, none)) return;
  const io::Safetensors graph(path);
  const View* x = graph.find("x");
  if (!x || x->shape.rank != 2 || x->dim(1) == *known) return;
  fail(printable(path),
       {.what = "has features of another width than the network was trained on",
        .got = std::to_string(x->dim(1)),
        .expected = fmt::format("{}, as {} says", *known, printable((folder / "config.json").string())),
        .hint = "the graph's other features, or a network trained on these"});
}

// Of one row of logits, in double.
std::vector<double> softmax(const float* logits, int64_t n) {
  std::vector<double> p(logits, logits + n);
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& v : p) sum += v = std::exp(v - top);
  for (double& v : p) v /= sum;
  return p;
}

// Of nodes or graphs of a known class.
struct Score {
  double loss = 0, right = 0;
  int64_t count = 0;
  ordered_json json() const {
    const auto n = static_cast<double>(count);
    return {{"count", count}, {"loss", loss / n}, {"accuracy", right / n}};
  }
};

// Classes of the `each`s of a graph, "node" or "graph": those trained on apart from those held out.
ordered_json classes(const std::string& each, const graph::GraphData& data, const std::vector<float>& logits,
                     std::string& csv) {
  const int64_t width = data.classes;
  csv = each + ",label,trained,predicted";
  for (int64_t c = 0; c < width; ++c) csv += fmt::format(",p_{}", c);
  csv += '\n';
  Score sides[2];
  for (size_t i = 0; i < data.y.size(); ++i) {
    const std::vector<double> p = softmax(&logits[i * static_cast<size_t>(width)], width);
    const int64_t best = std::max_element(p.begin(), p.end()) - p.begin(), label = data.y[i];
    csv += fmt::format("{},{},{},{}", i, label < 0 ? "" : std::to_string(label), data.train[i], best);
    for (const double v : p) csv += fmt::format(",{:.6g}", v);
    csv += '\n';
    if (label < 0) continue;
    Score& score = sides[data.train[i]];
    score.loss -= std::log(p[static_cast<size_t>(label)]);
    score.right += best == label ? 1 : 0;
    ++score.count;
  }
  ordered_json result = {{each + "s", data.y.size()}, {"classes", width}};
  for (const auto& [name, score] : {std::pair("trained", sides[1]), {"held_out", sides[0]}}) {
    if (score.count > 0) result[name] = score.json();
  }
  return result;
}

ordered_json of_nodes(const train::Recipe& recipe, int64_t known, Ctx& ctx, std::string& csv) {
  train::Nodes nodes(recipe, known);
  return classes("node", nodes.data(), nodes.logits(ctx), csv);
}

ordered_json of_graphs(const train::Recipe& recipe, int64_t known, Ctx& ctx, std::string& csv) {
  train::Graphs graphs(recipe, known);
  std::vector<int32_t> all;
  for (int64_t g = 0; g < std::ssize(graphs.data().y); ++g) all.push_back(static_cast<int32_t>(g));
  return classes("graph", graphs.data(), graphs.logits(ctx, all), csv);
}

// The pairs held out, or where there are none, those that were trained on; and as many that are not joined.
ordered_json of_pairs(const train::Recipe& recipe, Ctx& ctx, std::string& csv) {
  train::Links links(recipe);
  const bool held_out = links.holds_out();
  links.draw(0, held_out);
  const std::vector<float> scores = links.scores(ctx);
  const graph::Csr& pairs = links.pairs().in;
  std::vector<float> sides[2];
  csv = "source,target,joined,score,probability\n";
  for (int64_t i = 0; i < pairs.rows; ++i) {
    for (int64_t e = pairs.rowptr[static_cast<size_t>(i)]; e < pairs.rowptr[static_cast<size_t>(i) + 1]; ++e) {
      const auto at = static_cast<size_t>(e);
      const auto score = static_cast<double>(scores[at]);
      csv += fmt::format("{},{},{},{:.6g},{:.6g}\n", pairs.col[at], i, links.labels()[at], score,
                         1 / (1 + std::exp(-score)));
      sides[links.labels()[at]].push_back(scores[at]);
    }
  }
  ordered_json r = {{"pairs", pairs.edges()}, {"of", held_out ? "held_out" : "trained"}};
  const auto auc = train::auc_of(sides[1], sides[0]);
  r["auc"] = auc ? ordered_json(*auc) : nullptr;  // no pair could be drawn that is not joined
  r["hits_at_20"] = train::hits_at(20, sides[1], sides[0]);
  return r;
}

std::string text_of(const ordered_json& r) {
  std::string text =
      fmt::format("{}, {}", printable(r["model"].get<std::string>()), printable(r["graph"].get<std::string>()));
  if (r.contains("auc"))
    return text + fmt::format("\nAUC {}, hits at 20 {:.4f} of {} pairs {}",
                              r["auc"].is_null() ? "none" : fmt::format("{:.4f}", r["auc"].get<double>()),
                              r["hits_at_20"].get<double>(), r["pairs"].get<int64_t>(),
                              r["of"] == "held_out" ? "held out" : "trained on");
  for (const auto& [name, what] : {std::pair("trained", "trained on"), {"held_out", "held out"}}) {
    if (!r.contains(name)) continue;
    const ordered_json& s = r[name];
    text += fmt::format("\naccuracy {:.4f}, loss {:.4f} on {} {}s {}", s["accuracy"].get<double>(),
                        s["loss"].get<double>(), s["count"].get<int64_t>(), r["task"].get<std::string>(), what);
  }
  return text;
}

}  // namespace

bool holds_graph_network(const fs::path& folder) {
  std::error_code none;
  const fs::path config = folder / "config.json";
  if (!fs::is_regular_file(config, none) || !fs::is_regular_file(train::GraphWeights::file_in(folder), none))
    return false;
  const io::Json json = io::Json::read(config);
  if (!json.is_object()) return false;
  const auto is_text = [&](const char* key) {
    const auto value = json.get({key});
    return value && value->is_string();
  };
  if (!is_text("model") || !is_text("task")) return false;
  const std::string model = json.need({"model"}).as_string();
  if (!gnn::kind_of(model) && json.get({"classes"}))
    fail(printable(config.string()), {.what = "names an unknown kind of graph network",
                                      .got = printable(model),
                                      .expected = fmt::format("{}", fmt::join(gnn::kind_names(), ", "))});
  return gnn::kind_of(model).has_value();
}

bool evals_graph(const std::string& model, const Cli& cli) {
  const bool graph = !model.empty() && holds_graph_network(model);
  constexpr std::string_view kGraph[] = {"--graph", "--predictions"}, kBoth[] = {"--threads", "--json"};
  for (const auto& [name, text] : cli.words()) {
    const bool own = std::ranges::find(kGraph, name) != std::end(kGraph);
    if (!typed(cli, name.substr(2)) || std::ranges::find(kBoth, name) != std::end(kBoth) || own == graph) continue;
    fail(name, {.what = graph ? "does not go with a graph network" : "needs a graph network",
                .got = printable(model),
                .hint = graph ? "" : "braid eval RUN"});
  }
  return graph;
}

int eval_graph(const EvalGraphArgs& args) {
  if (!args.predictions.empty()) io::check_new_file(args.predictions, ".csv");
  const fs::path folder(args.folder);
  train::Recipe recipe = recipe_of(folder);
  recipe.graph.init = train::GraphWeights::file_in(folder).string();
  recipe.graph.sample = 0;
  recipe.batch = 0;
  recipe.parallel = {};
  if (recipe.out.empty()) recipe.out = args.folder;
  if (!args.graph.empty()) recipe.graph.path = args.graph;
  if (recipe.graph.path.empty())
    fail("eval", {.what = "no recipe beside the network names its graph",
                  .got = printable(args.folder),
                  .hint = "--graph FILE.safetensors"});
  Arena arena;
  Ctx ctx{.arena = arena};
  if (args.threads > 0) ctx.threads = static_cast<int>(args.threads);
  const std::string& task = recipe.graph.task;
  const int64_t known = io::Json::read(folder / "config.json").need({"classes"}).as_int({1, 1 << 20});
  check_width(folder, recipe.graph.path);
  std::string csv;
  const ordered_json found = with_paths_of(recipe, [&] {
    return task == "edge"    ? of_pairs(recipe, ctx, csv)
           : task == "graph" ? of_graphs(recipe, known, ctx, csv)
                             : of_nodes(recipe, known, ctx, csv);
  });
  ordered_json result = {{"model", args.folder}, {"graph", recipe.graph.path}, {"task", task}};
  result.update(found);
  if (!args.predictions.empty()) {
    io::write_text_file(args.predictions, csv);
    result["predictions"] = args.predictions;
  }
  std::string text = text_of(result);
  if (!args.predictions.empty()) text += fmt::format("\npredictions in {}", printable(args.predictions));
  print_result(args.json, result, text);
  return 0;
}

}  // namespace braid::apps
