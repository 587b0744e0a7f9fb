#include "prune/nest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <sstream>

#include "io/atomic_file.h"
#include "io/model_path.h"
#include "models/folder_config.h"
#include "models/load.h"
#include "prune/config_edit.h"
#include "prune/measure.h"
#include "prune/whole.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::prune {
namespace {

using models::Config;

constexpr int64_t kBudgets = 16;

class Nester {
 public:
  Nester(const io::ModelPath& path, const data::DataSpec& data, const NestOptions& options, const Stage& stage)
      : options_(options), stage_(stage), path_(path), whole_(path, data, options.prune, stage) {}

  NestReport run(const std::filesystem::path& out) {
    NestReport report{
        .full = full_sizes(whole_.config()), .samples = std::ssize(whole_.rows()), .tokens = whole_.tokens()};
    check_budgets();
    if (!whole_.measure()) return report;
    order_ = order_of(whole_.config(), whole_.scores());
    const CostModel costs(whole_.config(), order_.layers);
    Candidate all{.cost = costs.of({}), .bytes = stored_bytes(path_.weights)};
    all.loss = quick_loss(*whole_.model(), whole_.quick(), threads());
    Nested nested{.measure = options_.measure == Measure::active ? "active" : "params"};
    nested.layer_order = order_.layers;
    nested.energy = energy_in_order(whole_.layouts(), whole_.scores(), first_of(whole_.config(), order_, {}));
    Candidate base = all;
    for (const Budget& wanted : options_.budgets) {
      if (wanted.share < 1) {
        const std::vector<Candidate> tried = search_within(all, base, wanted, costs);
        if (tried.empty()) return report;
        base = tried[0];
      }
      const Keep keep = keep_for(base.sizes);
      Budget& found = nested.budgets.emplace_back(budget_of(whole_.config(), whole_.layouts(), keep, base.sizes));
      found.name = wanted.name;
      found.share = wanted.share;
      report.models.push_back({found, base.cost, loss_of(*cut(base.sizes))});
    }
    if (!write(out, nested)) return report;
    report.parent_loss = loss_of(*whole_.model());
    const io::ModelPath written{.name = out.string(), .folder = out, .weights = out};
    report.nested_loss = loss_of(*models::load_model(written));
    report.whole = true;
    return report;
  }

 private:
  int threads() const { return options_.prune.threads; }
  // Before anything is measured: the smallest has to be within reach.
  void check_budgets() const {
    const auto smallest = std::ranges::min_element(options_.budgets, {}, &Budget::share);
    if (smallest == options_.budgets.end() || smallest->share >= 1) return;
    std::vector<int64_t> order(whole_.config().layers.size());
    std::iota(order.begin(), order.end(), 0);
    const CostModel costs(whole_.config(), order);
    const Candidate all{.cost = costs.of({})};
    const Target target{.what = options_.measure, .value = smallest->share, .share = true};
    check_target(whole_.ranges(), all, costs, order, {.target = target, .axes = whole_.axes(), .asked = "--budgets"},
                 [](const Sizes&) { return 0; });
  }
  double loss_of(models::Model& model) { return staged_loss(model, whole_.rows(), threads(), stage_); }
  Keep keep_for(const Sizes& sizes) const {
    Keep keep = first_of(whole_.config(), order_, sizes);
    scale_norms(whole_.config(), whole_.layouts(), whole_.scores(), keep);
    return keep;
  }
  std::unique_ptr<models::Model> cut(const Sizes& sizes) {
    return cut_model(whole_.config(), whole_.layouts(), keep_for(sizes), sizes, whole_.files());
  }

  // The best sizes for a budget, none larger than those of `base`.
  std::vector<Candidate> search_within(const Candidate& all, const Candidate& base, const Budget& wanted,
                                       const CostModel& costs) {
    const bool active = options_.measure == Measure::active;
    const auto of = [&](const Candidate& c) { return static_cast<double>(active ? c.cost.active : c.cost.params); };
    const Target target{.what = options_.measure, .value = wanted.share * of(all)};
    auto ranges = whole_.ranges();
    std::vector<Axis> axes;
    for (const Axis a : whole_.axes()) {
      AxisRange& range = ranges[static_cast<size_t>(a)];
      if (base.sizes[a] > 0) range.full = base.sizes[a];
      if (range.least < range.full) axes.push_back(a);
    }
    if (of(base) <= target.value)
      fail("--budgets", {.what = fmt::format("the sizes of the budget before {} meet it, too", wanted.name),
                         .got = fmt::format("{:.4f} of the whole", of(base) / of(all)),
                         .expected = "budgets further apart"});
    const Trials trials{
        .loss = [this](const Sizes& sizes) { return quick_loss(*cut(sizes), whole_.quick(), threads()); },
        .tokens_s = [](const Sizes&) { return 0.0; }};
    return search(ranges, base, costs,
                  {.target = target,
                   .axes = std::move(axes),
                   .candidates = options_.prune.candidates,
                   .base = base.sizes,
                   .asked = "--budgets"},
                  trials, [this](int64_t done, int64_t total) { return stage_("trying cuts", done, total); })
        .tried;
  }

  bool write(const std::filesystem::path& out, const Nested& nested) {
    const Keep keep = first_of(whole_.config(), order_, {});
    return whole_.write(keep, {}, out, {.exact_norms = true, .sizes = nested_text(nested)});
  }

  const NestOptions& options_;
  const Stage& stage_;
  const io::ModelPath& path_;
  Whole whole_;
  Keep order_;
};

}  // namespace

std::vector<Budget> parse_budgets(const std::string& text) {
  std::vector<Budget> list;
  std::istringstream words(text);
  const auto refuse = [&](const char* what, const std::string& got) {
    fail("--budgets", {.what = what, .got = printable(got), .expected = "shares like 1,0.75,small=0.5"});
  };
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    const std::string number = equals == word.npos ? word : word.substr(equals + 1);
    char* end = nullptr;
    Budget b{.name = equals == word.npos ? word : word.substr(0, equals)};
    b.share = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || b.name.empty() || !(b.share > 0 && b.share <= 1))
      refuse("is not a share of the model", word);
    const double as_number = std::strtod(b.name.c_str(), &end);
    if (*end == '\0' && as_number != b.share) refuse("is a number that is not the budget's share", word);
    for (const Budget& other : list) {
      if (other.name == b.name || other.share == b.share) refuse("names a budget twice", word);
    }
    list.push_back(std::move(b));
  }
  if (std::none_of(list.begin(), list.end(), [](const Budget& b) { return b.share == 1; }))
    list.push_back({.name = "1"});
  if (list.size() < 2) refuse("names no smaller model", text);
  if (std::ssize(list) > kBudgets) refuse("are too many budgets", std::to_string(list.size()));
  std::sort(list.begin(), list.end(), [](const Budget& a, const Budget& b) { return a.share > b.share; });
  return list;
}

NestReport nest_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                      const NestOptions& options, const Stage& stage) {
  io::need_folder(model);
  io::check_new_model(out);
  io::check_parent(out);
  try {
    return Nester(model, data, options, stage).run(out);
  } catch (const sys::Interrupted&) {
    return {};
  }
}

SliceReport slice_model(const io::ModelPath& nested, const std::string& budget, const std::filesystem::path& out,
                        const Stage& stage) {
  io::need_folder(nested);
  io::check_new_model(out);
  io::check_parent(out);
  const Config config = models::load_config(nested);
  const models::OpenFolder folder = models::open_folder(nested);
  const Layouts layouts(config, folder.source.get());
  refuse_quantised(nested, layouts, *folder.source);
  SliceReport report{.budget = read_nested(nested.folder, config, layouts).find("--budget", budget),
                     .full = full_sizes(config)};
  const Sizes& sizes = report.budget.sizes;
  report.cost = CostModel(config, report.budget.layers).of(sizes);
  const Keep keep = keep_of(config, layouts, report.budget);
  const Config small = resized(config, sizes, keep.layers);
  const std::string text = small_config_text(models::folder_config(nested), small, keep.layers);
  WeightStore none;
  CutSource source(*folder.source, layouts, keep, none);
  report.whole = write_small(nested, small, source, stacks_experts(layouts), text, out,
                             [&](int64_t done, int64_t total) { return stage("writing", done, total); });
  if (report.whole) report.bytes = stored_bytes(out);
  return report;
}

}  // namespace braid::prune
