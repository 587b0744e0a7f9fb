#include "puzzle/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <sstream>

#include "data/shuffle.h"
#include "engine/runner.h"
#include "io/atomic_file.h"
#include "io/model_path.h"
#include "models/count.h"
#include "models/inventory.h"
#include "prune/prune.h"
#include "puzzle/linear_fit.h"
#include "puzzle/work.h"
#include "sys/error.h"
#include "train/weight_hash.h"

namespace braid::puzzle {

const char* const kCosts[kCostKinds] = {"gib", "kv", "params", "decode_ms", "prefill_ms"};

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

std::string text_of(CostKind kind, double value, double parent) {
  const bool bytes = kind == CostKind::gib || kind == CostKind::kv;
  return fmt::format("{}={:.5g} ({:.1f}% of the parent)", kCosts[static_cast<size_t>(kind)],
                     bytes ? value / kGib : value, parent > 0 ? 100 * value / parent : 0);
}

bool is_time(CostKind kind) { return kind == CostKind::decode_ms || kind == CostKind::prefill_ms; }

class Searcher {
 public:
  Searcher(const io::ModelPath& path, const data::DataSpec& data, const Options& options, const Stage& stage)
      : path_(path), options_(options), stage_(stage), parent_(path), inputs_(options_.times) {
    const models::Config& config = parent_.config();
    Lists lists = options.lists;
    if (lists.of.empty()) lists = {.of = default_lists(config).of, .keep = lists.keep};
    report_.sites = sites_of(config, lists);
    // A turn of steps follows what was read (step_times).
    const int64_t most = config.positions_limit();
    if (most > 0 && most <= 3 * kSteps)
      fail(printable(path.name), {.what = "has too few positions for steps to be timed",
                                  .got = fmt::format("max_position_embeddings: {}", most),
                                  .expected = fmt::format("at least {}", 3 * kSteps + 1)});
    if (most > 0 && options.times.length > most - 3 * kSteps)
      fail("--length", {.what = "longer than the model allows",
                        .got = std::to_string(options.times.length),
                        .expected = fmt::format("at most {} (max_position_embeddings: {})", most - 3 * kSteps, most)});
    rows_ = prune::read_rows(data, path, config, options.samples + options.held);
    if (std::ssize(rows_) < 2)
      fail(printable(data.path), {.what = "too little data", .got = "1 row", .expected = "at least 2"});
    split_ = static_cast<size_t>(std::min(options.held, std::max<int64_t>(1, std::ssize(rows_) / 2)));
  }

  Report run(const std::filesystem::path& out) {
    count_costs();
    need_lower();
    check_limits(false);  // of what needs no measurement
    check_together();
    if (!options_.work.empty()) work_.emplace(options_.work, facts());
    const auto fitted = std::span(rows_).subspan(split_);
    bool whole = true;
    parent_.measure(fitted, options_.times.threads,
                    [&](int64_t done) { return whole = stage_("measuring importance", done, std::ssize(fitted)); });
    if (!whole || !judge_sites() || !measure()) return std::move(report_);
    choose();
    if (!write(out)) return std::move(report_);
    compare(out);
    if (work_) work_->remove();
    report_.whole = true;
    return std::move(report_);
  }

 private:
  // What is known of every variant from its shape.
  void count_costs() {
    std::vector<int64_t> whole(report_.sites.size());
    int64_t params = 0;
    report_.parent[CostKind::gib] =
        static_cast<double>(parent_.bytes_of(parent_.assembled(report_.sites, whole), report_.sites, &params));
    report_.parent[CostKind::params] = static_cast<double>(params);
    report_.rest = report_.parent;
    for (size_t s = 0; s < report_.sites.size(); ++s) {
      std::vector<Rated>& list = report_.rated.emplace_back();
      for (const Variant& v : report_.sites[s].variants) list.emplace_back().costs = costs_of(s, v);
      for (const CostKind kind : {CostKind::gib, CostKind::params}) report_.rest[kind] -= list[0].costs[kind];
      report_.parent[CostKind::kv] += list[0].costs[CostKind::kv];
    }
  }

  Costs costs_of(size_t site, const Variant& v) {
    Costs costs;
    if (v.change == Change::none) return costs;
    const models::Config config = parent_.block_config(site, v);
    int64_t params = 0;
    costs[CostKind::gib] =
        static_cast<double>(parent_.bytes_of(config, std::span(report_.sites).subspan(site, 1), &params));
    costs[CostKind::params] = static_cast<double>(params);
    const models::SequenceValues seq = models::count_sequence(config);
    const int64_t each = 4 * (seq.ssm + seq.conv) + 2 * seq.kv_per_token * options_.times.length;
    costs[CostKind::kv] = static_cast<double>(each * options_.times.batch);
    return costs;
  }

  // Every block in order: its variants trained on the fitted rows and judged by the others.
  bool judge_sites() {
    Judge judge(parent_, std::span(rows_).first(split_), options_.times.threads);
    report_.parent_loss = judge.parent_loss();
    // Nothing else reads the streams of the other rows.
    const bool fits = options_.distill.tokens > 0 || any_linear();
    Judge fitted(parent_, fits ? std::span(rows_).subspan(split_) : std::span<data::Batch>(), options_.times.threads,
                 true);
    int64_t total = 0, done = 0;
    for (const Site& site : report_.sites) total += std::ssize(site.variants) - 1;
    for (size_t s = 0; s < report_.sites.size(); ++s) {
      inputs_.take(judge);
      std::vector<DistillRow> rows;
      for (size_t i = 0; i < fitted.rows(); ++i) rows.push_back({&fitted.row(i), fitted.stream(i)});
      fitted.advance();
      for (size_t i = 0; i < rows.size(); ++i) rows[i].after = fitted.stream(i);
      auto& values = values_.emplace_back(report_.sites[s].variants.size());
      for (size_t v = 1; v < values.size(); ++v) {
        const auto go_on = [&] { return stage_("judging variants", done, total); };
        if (!go_on()) return false;
        if (!finished(s, v, values[v])) {
          values[v] = rate(judge, rows, s, v, go_on);
          if (!keep(s, v, values[v], go_on)) return false;
        }
        ++done;
      }
      judge.advance();
    }
    return stage_("judging variants", done, total);
  }

  // What scores and values depend on. Numbers of threads change none.
  Facts facts() const {
    uint64_t rows = 0;
    for (const data::Batch& row : rows_) {
      for (const int32_t id : row.ids) rows = data::mix(rows, static_cast<uint64_t>(id));
      for (const int32_t target : row.targets) rows = data::mix(rows, static_cast<uint64_t>(target));
    }
    std::string variants;
    for (const Site& site : report_.sites) {
      for (const Variant& v : site.variants)
        variants += fmt::format("{} {}; ", v.name, v.change == Change::none ? "" : shape_of(v.block));
    }
    return {{"the model", fmt::format("{:016x}", train::model_hash(path_.weights))},
            {"the data", fmt::format("{} rows, {:016x}", rows_.size(), rows)},
            {"--held", std::to_string(split_)},
            {"--variants", variants},
            {"--distill-tokens", std::to_string(options_.distill.tokens)},
            {"--distill-lr", fmt::format("{}", options_.distill.lr)}};
  }

  // What the values of a variant are: some are always its own, all of them once it is trained.
  Work::Tensors tensors_of(size_t s, size_t v) {
    const Variant& variant = report_.sites[s].variants[v];
    Work::Tensors tensors;
    if (variant.change == Change::none) return tensors;
    for (const models::TensorSpec& t : models::stored_inventory(parent_.block_config(s, variant), parent_.files()))
      tensors[t.name].shape = {t.rows(), t.cols()};
    for (const auto& [name, own] : parent_.first_values(report_.sites[s], variant).of)
      tensors[name] = {.shape = own.value.shape, .like = own.like, .always = true};
    return tensors;
  }

  // Whether an earlier search did that.
  bool finished(size_t s, size_t v, Values& values) {
    if (!work_ || !work_->has(s, v)) return false;
    Work::Done done = work_->load(s, v, tensors_of(s, v));
    Rated& rated = report_.rated[s][v];
    done.rated.costs = rated.costs;
    rated = done.rated;
    rated.score = rated.difference.of(options_.metric);
    values = std::move(done.values);
    ++report_.reused;
    return true;
  }

  // A variant whose training was stopped is not finished. False: it was.
  bool keep(size_t s, size_t v, Values& values, const std::function<bool()>& go_on) {
    if (!work_) return true;
    if (!go_on()) return false;
    work_->save(s, v, report_.rated[s][v], values);
    values = work_->load(s, v, tensors_of(s, v)).values;
    return true;
  }

  bool any_linear() const {
    for (const Site& site : report_.sites) {
      for (const Variant& v : site.variants) {
        if (v.change == Change::linear) return true;
      }
    }
    return false;
  }

  Values rate(Judge& judge, std::span<const DistillRow> rows, size_t s, size_t v, const std::function<bool()>& go_on) {
    const Site& site = report_.sites[s];
    const Variant& variant = site.variants[v];
    Rated& rated = report_.rated[s][v];
    Values values;
    std::unique_ptr<models::Model> block;
    if (variant.change != Change::none) {
      values = parent_.first_values(site, variant);
      if (variant.change == Change::linear) values = fitted_linear(parent_, s, values, rows, options_.times.threads);
      block = parent_.block(site, s, variant, values);
    }
    rated.local = rated.untrained = judge.local_error(block.get());
    if (block && options_.distill.tokens > 0) {
      DistillOptions training = options_.distill;
      training.go_on = go_on;
      ++report_.distilled;
      Values trained = distilled(parent_, site, s, variant, values, rows, training);
      auto other = parent_.block(site, s, variant, trained);
      const double local = judge.local_error(other.get());
      rated.trained = local < rated.local;
      if (rated.trained) {
        rated.local = local;
        values = std::move(trained);
        block = std::move(other);
      }
    }
    rated.difference = judge.replaced(block.get());
    rated.score = rated.difference.of(options_.metric);
    return values;
  }

  bool measure() {
    const TimeTable table =
        measure_times(parent_, report_.sites, inputs_, options_.times,
                      [this](int64_t done, int64_t total) { return stage_("timing variants", done, total); });
    if (table.of.empty()) return false;
    const auto set = [](Costs& costs, const Times& t) {
      costs[CostKind::decode_ms] = t.decode;
      costs[CostKind::prefill_ms] = t.prefill;
    };
    set(report_.rest, table.rest);
    set(report_.parent, table.rest);
    for (size_t s = 0; s < table.of.size(); ++s) {
      for (size_t v = 0; v < table.of[s].size(); ++v) set(report_.rated[s][v].costs, table.of[s][v]);
      report_.parent[CostKind::decode_ms] += table.of[s][0].decode;
      report_.parent[CostKind::prefill_ms] += table.of[s][0].prefill;
    }
    return true;
  }

  // Error for limits that the model meets as it is, before anything is measured: no variant is larger than the whole.
  void need_lower() const {
    const auto met = [&](const Limit& limit) {
      if (limit.share || is_time(limit.kind)) return limit.share && limit.value >= 1;
      return report_.parent[limit.kind] <= limit.value * (limit.kind == CostKind::params ? 1 : kGib);
    };
    for (const Limit& limit : options_.limits) {
      const bool alone = std::all_of(options_.limits.begin(), options_.limits.end(), met);
      if (!met(limit) || (!alone && (!limit.share || is_time(limit.kind)))) continue;
      const double whole = report_.parent[limit.kind], unit = limit.kind == CostKind::params ? 1 : kGib;
      const char* kind = kCosts[static_cast<size_t>(limit.kind)];
      fail("--limit", {.what = "the model meets this as it is",
                       .got = limit.share ? fmt::format("{}={:g}%", kind, 100 * limit.value)
                                          : fmt::format("{}={:g}", kind, limit.value),
                       .expected = is_time(limit.kind) ? "below 100%, or another limit beside it"
                                                       : fmt::format("below 100%, which is {:.5g}", whole / unit)});
    }
  }

  // Each limit by itself; error with the nearest that can be met.
  void check_limits(bool timed) {
    for (const Limit& limit : options_.limits) {
      if (is_time(limit.kind) && !timed) continue;
      const double unit = limit.kind == CostKind::gib || limit.kind == CostKind::kv ? kGib : 1;
      const double whole = report_.parent[limit.kind], value = limit.share ? limit.value * whole : limit.value * unit;
      report_.limits[limit.kind] = value;
      double least = report_.rest[limit.kind];
      for (const std::vector<Rated>& list : report_.rated) {
        least += std::min_element(list.begin(), list.end(), [&](const Rated& a, const Rated& b) {
                   return a.costs[limit.kind] < b.costs[limit.kind];
                 })->costs[limit.kind];
      }
      if (least > value)
        fail("--limit", {.what = fmt::format("no choice of variants meets {}", text_of(limit.kind, value, whole)),
                         .got = fmt::format("{} as the nearest", text_of(limit.kind, least, whole)),
                         .hint = "a higher limit, or smaller variants in --variants FILE"});
    }
  }

  // Of these limits.
  compress::Instance instance_of(std::span<const Limit> limits) {
    compress::Instance instance;
    for (const Limit& limit : limits) instance.limits.push_back(report_.limits[limit.kind] - report_.rest[limit.kind]);
    for (const std::vector<Rated>& list : report_.rated) {
      auto& layer = instance.layers.emplace_back();
      for (const Rated& r : list) {
        compress::Variant& v = layer.emplace_back(compress::Variant{.score = r.score, .cost = {}});
        for (const Limit& limit : limits) v.cost.push_back(r.costs[limit.kind]);
      }
    }
    return instance;
  }

  // Limits that need no measurement, all at once, before hours are spent: error when no choice meets them.
  void check_together() {
    std::vector<Limit> counted;
    std::copy_if(options_.limits.begin(), options_.limits.end(), std::back_inserter(counted),
                 [](const Limit& limit) { return !is_time(limit.kind); });
    if (counted.size() > 1) (void)compress::choose(instance_of(counted), "--limit");
  }

  void choose() {
    check_limits(true);
    report_.instance = instance_of(options_.limits);
    report_.choice = compress::choose(report_.instance, "--limit");
    report_.chosen = report_.rest;
    bool any = false;
    for (size_t s = 0; s < report_.sites.size(); ++s) {
      const auto v = static_cast<size_t>(report_.choice.variants[s]);
      report_.chosen += report_.rated[s][v].costs;
      any = any || report_.sites[s].variants[v].change != Change::none;
    }
    if (!any)
      fail("--limit", {.what = "no block would stay", .hint = "a higher limit, or a block in `keep` of --variants"});
  }

  bool write(const std::filesystem::path& out) {
    prune::Replacements values;
    for (size_t s = 0; s < values_.size(); ++s) {
      const auto v = static_cast<size_t>(report_.choice.variants[s]);
      values.insert(values_[s][v].of.begin(), values_[s][v].of.end());
    }
    return parent_.write(report_.sites, report_.choice.variants, values, out,
                         [this](int64_t done, int64_t total) { return stage_("writing", done, total); });
  }

  // The folder beside the parent, in turns.
  void compare(const std::filesystem::path& out) {
    const io::ModelPath written{.name = out.string(), .folder = out, .weights = out};
    report_.bytes = prune::stored_bytes(out);
    Judge judge(parent_, std::span(rows_).first(split_), options_.times.threads);
    report_.assembled = judge.of(*models::load_model(written));
    const double batch = static_cast<double>(options_.times.batch) * 1e3;
    report_.parent_speed.predicted = batch / report_.parent[CostKind::decode_ms];
    report_.chosen_speed.predicted = batch / report_.chosen[CostKind::decode_ms];
    const std::vector<double> ms = step_times({path_, written});
    report_.parent_speed.measured = batch / ms[0];
    report_.chosen_speed.measured = batch / ms[1];
  }

  // Steps of whole models as braid run makes them, each model in its turn: medians in milliseconds.
  std::vector<double> step_times(const std::vector<io::ModelPath>& paths) const {
    std::vector<std::unique_ptr<engine::Runner>> runners;
    for (const io::ModelPath& path : paths) {
      engine::RunnerOptions options;
      options.sequences = options_.times.batch;
      options.threads = options_.times.threads;
      options.context = options_.times.length + kTurns * kSteps + 1;
      options.beyond_training = true;
      if (const int64_t most = parent_.config().positions_limit(); most > 0)
        options.context = std::min(options.context, most);
      runners.push_back(std::make_unique<engine::Runner>(models::load_model(path), options));
      fill_contexts(*runners.back());
    }
    std::vector<std::vector<double>> samples(paths.size());
    for (int64_t turn = 0; turn < kTurns; ++turn) {
      for (size_t i = 0; i < runners.size(); ++i) {
        for (int64_t k = 0; k < kSteps; ++k) {
          if (runners[i]->length(0) + 1 >= runners[i]->options().context) break;
          const double ms = one_step(*runners[i]);
          if (turn > 0 && k > 0) samples[i].push_back(ms);
        }
      }
    }
    std::vector<double> medians;
    medians.reserve(samples.size());
    for (const std::vector<double>& list : samples) medians.push_back(median(list));
    return medians;
  }

  void fill_contexts(engine::Runner& runner) const {
    std::vector<int32_t> ids;
    for (size_t r = 0; std::ssize(ids) < options_.times.length; r = (r + 1) % rows_.size())
      ids.insert(ids.end(), rows_[r].ids.begin(), rows_[r].ids.end());
    ids.resize(static_cast<size_t>(std::min(options_.times.length, runner.options().context - 2)));
    for (int64_t i = 0; i < options_.times.batch; ++i) (void)runner.prefill(i, ids, [](const Tensor&) {});
  }

  double one_step(engine::Runner& runner) const {
    const auto batch = static_cast<size_t>(options_.times.batch);
    std::vector<int32_t> ids(batch);
    std::vector<engine::Piece> pieces(batch);
    for (size_t i = 0; i < batch; ++i) {
      const data::Batch& row = rows_[i % rows_.size()];
      ids[i] = row.ids[static_cast<size_t>(runner.length(0)) % row.ids.size()];
      pieces[i] = {.sequence = static_cast<int64_t>(i), .tokens = 1, .phase = Phase::step};
    }
    const auto begin = std::chrono::steady_clock::now();
    const Tensor logits = runner.logits(runner.forward(ids, pieces), Phase::step);
    return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  static constexpr int64_t kTurns = 8, kSteps = 8;  // the first of each warms up

  const io::ModelPath& path_;
  const Options& options_;
  const Stage& stage_;
  Parent parent_;
  TimeInputs inputs_;
  std::vector<data::Batch> rows_;
  size_t split_ = 0;                         // rows before it judge, the others are fitted to
  std::vector<std::vector<Values>> values_;  // by site and variant
  std::optional<Work> work_;
  Report report_;
};

}  // namespace

Costs& Costs::operator+=(const Costs& other) {
  for (size_t i = 0; i < kCostKinds; ++i) of[i] += other.of[i];
  return *this;
}

std::vector<Limit> parse_limits(const std::string& text) {
  const auto refuse = [](const std::string& word) {
    fail("--limit",
         {.what = "no such limit",
          .got = printable(word),
          .expected = fmt::format("{} = a number above 0, or a share of the parent's", fmt::join(kCosts, ", ")),
          .hint = "gib=0.5, gib=75%, decode_ms=12"});
  };
  std::vector<Limit> limits;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    const auto* const kind = std::find(std::begin(kCosts), std::end(kCosts), word.substr(0, equals));
    if (equals == std::string::npos || kind == std::end(kCosts)) refuse(word);
    Limit limit{.kind = static_cast<CostKind>(kind - std::begin(kCosts))};
    const std::string number = word.substr(equals + 1);
    char* end = nullptr;
    limit.value = std::strtod(number.c_str(), &end);
    const std::string unit = end;
    if (end == number.c_str() || !std::isfinite(limit.value) || limit.value <= 0 || limit.value > 1e18) refuse(word);
    if (!unit.empty() && unit != "%" && unit != "x") refuse(word);
    limit.share = !unit.empty();
    if (unit == "%") limit.value /= 100;
    for (const Limit& other : limits) {
      if (other.kind == limit.kind)
        fail("--limit", {.what = "a limit is given twice", .got = printable(word), .expected = "each once"});
    }
    limits.push_back(limit);
  }
  if (limits.empty()) refuse(text);
  return limits;
}

Report search_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                    const Options& options, const Stage& stage) {
  io::need_folder(model);
  io::check_new_model(out);
  io::check_parent(out);
  return Searcher(model, data, options, stage).run(out);
}

}  // namespace braid::puzzle
