#include "apps/shfl_bw_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/synth/synth.h"
#include "io/json.h"
#include "io/model_path.h"
#include "models/load.h"
#include "prune/measure.h"
#include "prune/sparsify.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"
#include "train/language.h"
#include "train/trainer.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kRow = 512;  // tokens, of samples and of rows of a batch

class Study {
 public:
  explicit Study(const ShflBwStudy& o)
      : o_(o),
        dir_(fs::absolute(o.dir)),
        threads_(o.threads > 0 ? static_cast<int>(o.threads) : sys::default_threads()) {}

  PrunedStudy run(const std::function<void(int64_t, int64_t)>& done) {
    PrunedStudy out;
    const bool written = synth::write(dir_ / "text", {.train = o_.train, .valid = o_.valid, .tasks = 1, .avoid = {}},
                                      [](int64_t) { return sys::caught_signal() == 0; });
    const io::ModelPath model = io::find_model(o_.model);
    if (!written) return out;
    rows_ = prune::read_rows(data(kValid), model, models::load_config(model), o_.held_out);
    const std::vector<std::pair<masks::Pattern, double>> cells = grid();
    const auto total = std::ssize(cells) + 1;
    done(0, total);
    out.loss = loss_of(model);
    out.trained_loss = trained(model.folder, "dense");
    for (const auto& [pattern, density] : cells) {
      if (sys::caught_signal() != 0) return out;
      done(std::ssize(out.outcomes) + 1, total);
      out.outcomes.push_back(pruned(model, pattern, density));
    }
    return out;
  }

 private:
  static constexpr const char *kTrain = "train.jsonl", *kValid = "valid.jsonl";

  std::vector<std::pair<masks::Pattern, double>> grid() const {
    std::vector<std::pair<masks::Pattern, double>> cells;
    for (const masks::Pattern p : masks::kPatterns) {
      for (const double density : o_.densities) {
        if (p != masks::Pattern::two_four || density == 0.5) cells.emplace_back(p, density);
      }
    }
    return cells;
  }

  data::DataSpec data(const char* file) const {
    return {.kind = "jsonl", .path = (dir_ / "text" / file).string(), .batch = 1, .length = kRow};
  }

  double loss_of(const io::ModelPath& path) {
    return prune::mean_loss(*models::load_model(path), rows_, threads_, [](int64_t) { return true; });
  }

  PrunedOutcome pruned(const io::ModelPath& model, masks::Pattern pattern, double density) {
    PrunedOutcome out{.pattern = pattern};
    std::string name = fmt::format("{}-{:g}", name_of(pattern), density);
    std::replace(name.begin(), name.end(), ':', '-');
    const fs::path folder = dir_ / name;
    const prune::SparseOptions options{
        .spec = {.pattern = pattern, .density = density, .block = o_.block, .threads = threads_},
        .samples = o_.samples,
        .threads = threads_};
    const prune::SparseReport report = prune::sparsify_model(
        model, data(kTrain), folder, options, [](const char*, int64_t, int64_t) { return sys::caught_signal() == 0; });
    if (!report.whole) return out;
    out.folder = folder.string();
    int64_t kept = 0, values = 0;
    double kept_score = 0, score = 0;
    for (const prune::SparseGroup& g : report.groups) {
      kept += g.kept;
      values += g.values;
      kept_score += g.kept_score;
      score += g.score;
    }
    out.density = static_cast<double>(kept) / static_cast<double>(values);
    out.retained = kept_score / score;
    out.loss = loss_of({.name = name, .folder = folder, .weights = folder});
    out.trained_loss = trained(folder, name);
    return out;
  }

  // The loss after the study's training, of a folder.
  double trained(const fs::path& init, const std::string& name) {
    const fs::path out = dir_ / (name + ".run");
    ordered_json root = {{"init", init.string()}, {"out", out.string()}, {"dtype", "bf16"},
                         {"steps", o_.steps},     {"batch", 4},          {"length", kRow}};
    root["data"] = {{"kind", "jsonl"}, {"path", (dir_ / "text" / kTrain).string()}};
    root["optimizer"] = {{"kind", "muon"}, {"lr", 5e-4}, {"weight_decay", 0.0}, {"keep_zeros", true}};
    root["schedule"] = {{"kind", "wsd"}, {"warmup", o_.steps / 10}, {"decay", o_.steps / 2}};
    const train::Recipe recipe = train::read_recipe(io::Json::parse(root.dump(), "braid repro shfl-bw"));
    {
      Arena arena;
      Ctx ctx{.arena = arena, .threads = threads_};
      train::Language language(recipe, ctx);
      train::Trainer trainer(recipe, language, ctx);
      trainer.train({});
    }
    if (sys::caught_signal() != 0) return 0;
    return loss_of({.name = name, .folder = out, .weights = out});
  }

  const ShflBwStudy& o_;
  fs::path dir_;
  int threads_;
  std::vector<data::Batch> rows_;
};

}  // namespace

PrunedStudy prune_and_train(const ShflBwStudy& study, const std::function<void(int64_t, int64_t)>& done) {
  return Study(study).run(done);
}

}  // namespace braid::apps
