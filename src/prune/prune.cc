#include "prune/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "codec/codec.h"
#include "engine/runner.h"
#include "io/atomic_file.h"
#include "io/model_path.h"
#include "io/safetensors.h"
#include "models/count.h"
#include "models/load.h"
#include "prune/cut_model.h"
#include "prune/whole.h"
#include "sys/error.h"
#include "sys/interrupt.h"

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
      : path_(path), options_(options), stage_(stage), whole_(path, data, options, stage) {}

  Report run(const std::filesystem::path& out) {
    Report report{.full = full_sizes(whole_.config()), .samples = std::ssize(whole_.rows()), .tokens = whole_.tokens()};
    for (const Axis a : whole_.axes()) report.cut.push_back(whole_.ranges()[static_cast<size_t>(a)]);
    const io::Safetensors stored(path_.weights);
    order_.resize(whole_.config().layers.size());
    const CostModel costs(whole_.config(), order_);
    const FileBytes bytes(whole_.config(), whole_.layouts(), order_, [&](const models::TensorSpec& spec) {
      return size_of(stored.need(whole_.files().get(spec).name).dtype);
    });
    std::iota(order_.begin(), order_.end(), 0);
    Candidate whole{.cost = costs.of({}), .bytes = stored_bytes(path_.weights)};
    const auto time = [&] { whole.tokens_s = decode_rate(whole_.model(), options_.threads); };
    const bool by_speed = options_.target.what == Measure::tok_s;
    if (by_speed) time();
    const SearchOptions wanted{.target = options_.target, .axes = whole_.axes(), .candidates = options_.candidates};
    check_target(whole_.ranges(), whole, costs, order_, wanted, [&](const Sizes& sizes) { return bytes.of(sizes); });
    if (!by_speed) time();
    if (!whole_.measure()) return report;
    std::ranges::copy(ranked(whole_.scores().of.at({Axis::layers, -1})), order_.begin());  // which `costs` reads
    whole.loss = quick_loss(*whole_.model(), whole_.quick(), options_.threads);
    const Trials trials{
        .loss = [this](const Sizes& sizes) { return quick_loss(*cut(sizes), whole_.quick(), options_.threads); },
        .tokens_s = [this](const Sizes& sizes) { return decode_rate(cut(sizes), options_.threads); },
        .bytes = [&bytes](const Sizes& sizes) { return bytes.of(sizes); }};
    report.found = search(whole_.ranges(), whole, costs, wanted, trials,
                          [this](int64_t done, int64_t total) { return stage_("trying cuts", done, total); });
    report.parent = shown(whole);
    if (report.found.tried.empty()) return report;
    report.child = shown(report.found.tried[0]);
    if (!whole_.write(keep(report.child.candidate.sizes), report.child.candidate.sizes, out)) return report;
    report.parent_loss = staged_loss(*whole_.model(), whole_.rows(), options_.threads, stage_);
    const io::ModelPath written{.name = out.string(), .folder = out, .weights = out};
    report.child_loss = staged_loss(*models::load_model(written), whole_.rows(), options_.threads, stage_);
    report.child.candidate.bytes = stored_bytes(out);
    report.whole = true;
    return report;
  }

 private:
  Keep keep(const Sizes& sizes) const {
    Keep keep = choose(whole_.config(), whole_.layouts(), sizes, whole_.scores());
    keep.reset_router_bias = options_.reset_router_bias;
    return keep;
  }
  std::shared_ptr<models::Model> cut(const Sizes& sizes) {
    return cut_model(whole_.config(), whole_.layouts(), keep(sizes), sizes, whole_.files());
  }

  Shown shown(const Candidate& candidate) const {
    const int64_t depth = candidate.sizes[Axis::layers] > 0 ? candidate.sizes[Axis::layers] : std::ssize(order_);
    std::vector<int64_t> layers(order_.begin(), order_.begin() + depth);
    std::sort(layers.begin(), layers.end());
    const models::SequenceValues v = count_sequence(resized(whole_.config(), candidate.sizes, layers));
    return {.candidate = candidate, .state_bytes = 4 * (v.ssm + v.conv), .kv_bytes = 2 * v.kv_per_token};
  }

  const io::ModelPath& path_;
  const Options& options_;
  const Stage& stage_;
  Whole whole_;
  std::vector<int64_t> order_;
};

void check_paths(const io::ModelPath& model, const std::filesystem::path& out) {
  io::need_folder(model);
  io::check_new_model(out);
  io::check_parent(out);
}

}  // namespace

int64_t stored_bytes(const std::filesystem::path& weights) {
  const io::Safetensors file(weights);
  int64_t bytes = 0;
  for (const io::StoredTensor& t : file.tensors()) bytes += t.view.bytes();
  return bytes;
}

double staged_loss(models::Model& model, std::span<const data::Batch> rows, int threads, const Stage& stage) {
  return mean_loss(model, rows, threads, [&](int64_t done) { return stage("measuring loss", done, std::ssize(rows)); });
}

double quick_loss(models::Model& model, std::span<const data::Batch> rows, int threads) {
  return mean_loss(model, rows, threads, [](int64_t) { return sys::caught_signal() == 0; });
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
                                .expected = fmt::format("at least {}", kTokensLeast),
                                .hint = "more --samples, or a longer --length"});
  return rows;
}

void refuse_quantised(const io::ModelPath& model, const Layouts& layouts, nn::ParamSource& source) {
  for (const std::string& name : layouts.names())
    refuse_quantised(model, name, source.get(layouts.of(name).spec).value.spec);
}

void refuse_quantised(const io::ModelPath& model, const std::string& name, const QuantSpec& spec) {
  if (codec_of(spec.format).dense) return;
  fail(printable(model.name), {.what = "its weights are quantised",
                               .got = fmt::format("{} in {}", printable(name), name_of(spec)),
                               .expected = "F32, F16 or BF16",
                               .hint = "the model that it was made from, and braid quantize after"});
}

Report prune_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                   const Options& options, const Stage& stage) {
  check_paths(model, out);
  try {
    return Pruner(model, data, options, stage).run(out);
  } catch (const sys::Interrupted&) {
    return {};
  }
}

bool prune_to(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
              const Sizes& sizes, const Options& options, const Stage& stage) {
  check_paths(model, out);
  Whole whole(model, data, options, stage);
  return whole.measure() && whole.write(choose(whole.config(), whole.layouts(), sizes, whole.scores()), sizes, out);
}

}  // namespace braid::prune
