#include "prune/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "engine/runner.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "models/count.h"
#include "models/load.h"
#include "prune/config_edit.h"
#include "prune/cut_model.h"
#include "prune/write.h"
#include "sys/error.h"

namespace braid::prune {
namespace {

using models::Config;

constexpr int64_t kTokensLeast = 128;  // of calibration

// Tokens a second of one sequence, step by step: the median of some steps.
double decode_rate(std::shared_ptr<models::Model> model, int threads) {
  constexpr int64_t kWarm = 8, kSteps = 48;
  engine::RunnerOptions options;
  options.context = kWarm + kSteps + 1;
  if (const int64_t limit = model->config().positions_limit(); limit > 0)
    options.context = std::min(options.context, limit);
  options.threads = threads;
  const auto vocab = static_cast<int32_t>(model->config().vocab);
  engine::Runner runner(std::move(model), options);
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  const auto start = Clock::now();
  for (int32_t i = 0; i + 1 < options.context; ++i) {
    const auto begin = Clock::now();
    (void)runner.step(0, i % vocab);
    const auto end = Clock::now();
    if (i >= kWarm || i + 2 == options.context) seconds.push_back(std::chrono::duration<double>(end - begin).count());
    if (!seconds.empty() && end - start > std::chrono::seconds(3)) break;
  }
  std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
  return 1 / seconds[seconds.size() / 2];
}

class Pruner {
 public:
  Pruner(const io::ModelPath& path, const data::DataSpec& data, const Options& options, const Stage& stage)
      : path_(path),
        options_(options),
        stage_(stage),
        json_(io::Json::read(path.folder / "config.json")),
        config_(models::load_config(path)),
        folder_(models::open_folder(path)) {
    if (config_.loop)
      fail(printable(path.name), {.what = "models with recurrent depth cannot be pruned", .got = config_.family});
    ranges_ = axes_of(config_, options.floors);
    axes_ = parse_axes(options.axes, ranges_);
    check_axes();
    layouts_.emplace(config_, folder_.source.get());
    refuse_quantised(path, *layouts_, *folder_.source);
    model_ = whole_model(config_, *folder_.source);
    rows_ = read_rows(data, path, config_, options.samples);
  }

  Report run(const std::filesystem::path& out) {
    Report report{.full = full_sizes(config_), .samples = std::ssize(rows_)};
    for (const data::Batch& row : rows_) report.tokens += std::ssize(row.ids);
    for (const Axis a : axes_) report.cut.push_back(ranges_[static_cast<size_t>(a)]);
    if (!measure()) return report;
    order_ = ranked(scores_.of.at({Axis::layers, -1}));
    const CostModel costs(config_, order_);
    Candidate whole{.cost = costs.of({})};
    whole.bytes = stored_bytes(path_.weights);
    whole.loss = mean_loss(*model_, quick(), options_.threads);
    whole.tokens_s = decode_rate(model_, options_.threads);
    const Trials trials{
        .loss = [this](const Sizes& sizes) { return mean_loss(*cut(sizes), quick(), options_.threads); },
        .tokens_s = [this](const Sizes& sizes) { return decode_rate(cut(sizes), options_.threads); }};
    report.found =
        search(ranges_, whole, costs, {.target = options_.target, .axes = axes_, .candidates = options_.candidates},
               trials, [this](int64_t done, int64_t total) { return stage_("trying cuts", done, total); });
    report.parent = shown(whole);
    if (report.found.tried.empty()) return report;
    report.child = shown(report.found.tried[0]);
    if (!write(out, report.child.candidate.sizes)) return report;
    report.parent_loss = mean_loss(*model_, rows_, options_.threads);
    const io::ModelPath written{.name = out.string(), .folder = out, .weights = out};
    report.child_loss = mean_loss(*models::load_model(written), rows_, options_.threads);
    report.child.candidate.bytes = stored_bytes(out);
    report.whole = true;
    return report;
  }

 private:
  // Whether the family has a config for a cut along each axis. Those that were not asked for are left out.
  void check_axes() {
    std::vector<Axis> sayable;
    for (const Axis a : axes_) {
      Sizes sizes;
      sizes[a] = ranges_[static_cast<size_t>(a)].least;
      std::vector<int64_t> layers(static_cast<size_t>(a == Axis::layers ? sizes[a] : std::ssize(config_.layers)));
      std::iota(layers.begin(), layers.end(), 0);
      try {
        (void)small_config_text(json_, resized(config_, sizes, layers), layers);
        sayable.push_back(a);
      } catch (const Error&) {
        if (!options_.axes.empty()) throw;
      }
    }
    axes_ = std::move(sayable);
    if (axes_.empty()) fail("prune", {.what = "the model cannot be cut along any axis"});
  }

  std::span<const data::Batch> quick() const {
    return std::span(rows_).first(static_cast<size_t>(std::min(options_.quick, std::ssize(rows_))));
  }

  // The energies that norms are scaled by are measured whatever the score.
  bool measure() {
    bool whole = true;
    const auto stage = [&](const char* name) {
      return [this, name, &whole](int64_t done) { return whole = stage_(name, done, std::ssize(rows_)); };
    };
    const ExpertScore experts =
        options_.score == ScoreKind::reap ? ExpertScore::routed_tokens : ExpertScore::all_tokens;
    scores_ = measured_scores(*model_, rows_, experts, options_.threads, stage("measuring importance"));
    if (whole && options_.score == ScoreKind::taylor)
      scores_.of = taylor_scores(path_, rows_, options_.threads, stage("measuring gradients")).of;
    if (options_.score == ScoreKind::random) scores_.of = random_scores(config_, options_.seed).of;
    return whole;
  }

  std::shared_ptr<models::Model> cut(const Sizes& sizes) const {
    const Keep keep = choose(config_, *layouts_, sizes, scores_);
    return cut_model(config_, *layouts_, keep, sizes, *folder_.source);
  }

  Shown shown(const Candidate& candidate) const {
    const int64_t depth = candidate.sizes[Axis::layers] > 0 ? candidate.sizes[Axis::layers] : std::ssize(order_);
    std::vector<int64_t> layers(order_.begin(), order_.begin() + depth);
    std::sort(layers.begin(), layers.end());
    const models::SequenceValues v = count_sequence(resized(config_, candidate.sizes, layers));
    return {.candidate = candidate, .state_bytes = 4 * (v.ssm + v.conv), .kv_bytes = 2 * v.kv_per_token};
  }

  bool write(const std::filesystem::path& out, const Sizes& sizes) {
    const Keep keep = choose(config_, *layouts_, sizes, scores_);
    const Config small = resized(config_, sizes, keep.layers);
    const std::string text = small_config_text(json_, small, keep.layers);
    WeightStore none;
    CutSource source(*folder_.source, *layouts_, keep, none);
    const bool stacked = std::any_of(layouts_->names().begin(), layouts_->names().end(),
                                     [this](const std::string& name) { return layouts_->of(name).stack; });
    return write_small(path_, small, source, stacked, text, out,
                       [this](int64_t done, int64_t total) { return stage_("writing", done, total); });
  }

  const io::ModelPath& path_;
  const Options& options_;
  const Stage& stage_;
  io::Json json_;
  Config config_;
  models::OpenFolder folder_;
  std::array<AxisRange, kAxes> ranges_;
  std::vector<Axis> axes_;
  std::optional<Layouts> layouts_;
  std::shared_ptr<models::Model> model_;
  std::vector<data::Batch> rows_;
  Scores scores_;
  std::vector<int64_t> order_;
};

}  // namespace

int64_t stored_bytes(const std::filesystem::path& weights) {
  const io::Safetensors file(weights);
  int64_t bytes = 0;
  for (const io::StoredTensor& t : file.tensors()) bytes += t.view.bytes();
  return bytes;
}

std::vector<data::Batch> read_rows(const data::DataSpec& spec, const io::ModelPath& model, const Config& config,
                                   int64_t samples) {
  const data::Loader loader = data::open(spec, model.folder, config.vocab);
  const int64_t steps = loader.steps_per_epoch();
  std::vector<data::Batch> rows;
  int64_t targets = 0;
  for (int64_t step = 0; (steps == 0 || step < steps) && std::ssize(rows) < samples; ++step) {
    const data::Batch batch = loader.batch(step);
    for (int64_t r = 0; r < std::ssize(batch.row_ids) && std::ssize(rows) < samples; ++r) {
      data::Batch row;
      data::take_rows(batch, r, r + 1, row);
      targets += row.trained;
      if (row.trained > 0) rows.push_back(std::move(row));
    }
  }
  if (targets < kTokensLeast)
    fail(printable(spec.path), {.what = "too little data to calibrate with",
                                .got = fmt::format("{} tokens with a target", targets),
                                .expected = fmt::format("at least {}", kTokensLeast)});
  return rows;
}

void refuse_quantised(const io::ModelPath& model, const Layouts& layouts, nn::ParamSource& source) {
  for (const std::string& name : layouts.names())
    refuse_quantised(model, name, source.get(layouts.of(name).spec).value.spec.format);
}

void refuse_quantised(const io::ModelPath& model, const std::string& name, Format format) {
  if (format == Format::f32 || format == Format::f16 || format == Format::bf16) return;
  fail(printable(model.name), {.what = "its weights are quantised",
                               .got = fmt::format("{} in {}", printable(name), name_of(format)),
                               .expected = "F32, F16 or BF16",
                               .hint = "the model that it was made from, and braid quantize after"});
}

Report prune_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                   const Options& options, const Stage& stage) {
  io::need_folder(model);
  io::check_new_folder(out);
  io::check_parent(out);
  return Pruner(model, data, options, stage).run(out);
}

}  // namespace braid::prune
