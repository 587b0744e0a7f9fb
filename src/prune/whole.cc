#include "prune/whole.h"

#include <algorithm>
#include <numeric>

#include "models/folder_config.h"
#include "prune/config_edit.h"
#include "prune/measure.h"
#include "sys/error.h"

namespace braid::prune {

using models::Config;

Whole::Whole(const io::ModelPath& path, const data::DataSpec& data, const Options& options, const Stage& stage)
    : path_(path),
      options_(options),
      stage_(stage),
      json_(models::folder_config(path)),
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

// Whether the family has a config for a cut along each axis. Those that were not asked for are left out.
void Whole::check_axes() {
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
  if (axes_.empty()) fail("prune", {.what = "the model cannot be cut along any axis", .hint = "braid prune --pattern"});
}

std::span<const data::Batch> Whole::quick() const {
  return std::span(rows_).first(static_cast<size_t>(std::min(options_.quick, std::ssize(rows_))));
}

int64_t Whole::tokens() const {
  int64_t sum = 0;
  for (const data::Batch& row : rows_) sum += std::ssize(row.ids);
  return sum;
}

bool Whole::measure() {
  bool whole = true;
  const auto stage = [&](const char* name) {
    return [this, name, &whole](int64_t done) { return whole = stage_(name, done, std::ssize(rows_)); };
  };
  const ExpertScore experts = options_.score == ScoreKind::reap ? ExpertScore::routed_tokens : ExpertScore::all_tokens;
  scores_ = measured_scores(*model_, rows_, experts, options_.threads, stage("measuring importance"));
  if (whole && options_.score == ScoreKind::taylor)
    scores_.of = taylor_scores(path_, rows_, options_.threads, stage("measuring gradients")).of;
  scores_.ungrouped = options_.score == ScoreKind::ungrouped;
  if (options_.score == ScoreKind::random) scores_.of = random_scores(config_, options_.seed).of;
  return whole;
}

bool Whole::write(const Keep& keep, const Sizes& sizes, const std::filesystem::path& out, const NestedFiles& nested) {
  const Config small = resized(config_, sizes, keep.layers);
  const std::string text = small_config_text(json_, small, keep.layers);
  WeightStore none;
  CutSource source(*folder_.source, *layouts_, keep, none);
  return write_small(
      path_, small, source, stacks_experts(*layouts_), text, out,
      [this](int64_t done, int64_t total) { return stage_("writing", done, total); }, nested);
}

bool stacks_experts(const Layouts& layouts) {
  return std::any_of(layouts.names().begin(), layouts.names().end(),
                     [&](const std::string& name) { return layouts.of(name).stack; });
}

}  // namespace braid::prune
