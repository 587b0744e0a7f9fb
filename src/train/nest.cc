#include "train/nest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/philox.h"
#include "models/load.h"
#include "nn/precision.h"
#include "prune/write.h"
#include "sys/error.h"
#include "sys/parallel.h"
#include "sys/read.h"
#include "train/rollout.h"
#include "train/task.h"

namespace braid::train {
namespace {

constexpr uint32_t kStream = 0x6e657374;  // of the draws

// of(element of the masters, element of the copy, its column in the copy) for all values.
template <class Of>
void each_value(int64_t offset, int64_t cols, const std::vector<prune::Places>& places, Of&& of) {
  size_t at = 0;
  for (const prune::Places& p : places) {
    for (const int64_t r : p.rows) {
      const auto row = static_cast<size_t>(offset + r * cols);
      for (size_t c = 0; c < p.cols.size(); ++c) of(row + static_cast<size_t>(p.cols[c]), at++, c);
    }
  }
}

}  // namespace

void check_nest(const Recipe& recipe) {
  const NestRecipe& nest = recipe.nest;
  const NestRecipe unset;
  for (const auto& [word, is_set] : {std::pair("nest.router_lr", nest.router_lr != unset.router_lr),
                                     std::pair("nest.router_cost", nest.router_cost != unset.router_cost)}) {
    if (is_set && !nest.router)
      fail(word,
           {.what = "is of routers, which this run has none of", .hint = "nest.router = true, or leaving it out"});
  }
  if (nest.budgets.empty()) {
    if (!nest.sampling.empty()) fail("nest.sampling", {.what = "there are no budgets", .expected = "nest.budgets"});
    if (nest.router) fail("nest.router", {.what = "there are no budgets", .expected = "nest.budgets"});
    return;
  }
  if (!nest.sampling.empty() && nest.sampling.size() != nest.budgets.size())
    fail("nest.sampling", {.what = "is not a number for each budget",
                           .got = std::to_string(nest.sampling.size()),
                           .expected = std::to_string(nest.budgets.size())});
  if (!nest.sampling.empty() && std::ranges::all_of(nest.sampling, [](double share) { return share == 0; }))
    fail("nest.sampling", {.what = "trains no budget", .got = "only zeros", .expected = "a number above 0"});
  for (size_t i = 0; i < nest.budgets.size(); ++i) {
    if (std::count(nest.budgets.begin(), nest.budgets.end(), nest.budgets[i]) > 1)
      fail("nest.budgets", {.what = "names one twice", .got = fmt::format("{:g}", nest.budgets[i])});
  }
  if (nest.router && nest.budgets == std::vector<double>{1})
    fail("nest.router", {.what = "has no smaller model to size", .expected = "a budget below 1"});
  const auto refuse = [](bool asked, const char* word) {
    if (asked)
      fail("nest.budgets", {.what = fmt::format("cannot be combined with {}", word), .hint = "leaving one out"});
  };
  refuse(recipe.config.has_value(), "config: random weights are in no order");
  refuse(recipe.lora.rank > 0, "[lora]");
  refuse(nn::is_low_precision(recipe.precision), "precision.recipe");
  refuse(rates_answers(recipe) || generates(recipe), "[preference], [policy] or [rollout]");
  refuse(recipe.distill.hidden > 0, "distill.hidden: smaller models have other widths and layers");
  refuse(recipe.loss.router_bias_rate > 0, "loss.router_bias_rate");
  refuse(recipe.loss.quantile > 0, "loss.quantile");
  refuse(recipe.spike.z > 0 || recipe.spike.norm_z > 0, "[spike]: its window would mix losses of several models");
}

// Gives copies of what a smaller model has of the masters.
class NestedModels::Prefixes final : public nn::ParamSource {
 public:
  Prefixes(models::MasterWeights& masters, prune::CutSource& cut, Member& member)
      : masters_(masters), cut_(cut), member_(member) {}
  bool has(const std::string& name) const override { return cut_.has(name); }

 protected:
  Param first(const nn::ParamRequest& r) override {
    const models::MasterTensor& tensor = masters_.tensor(cut_.stored_name(r));
    const DType type = tensor.matrix ? masters_.products() : DType::f32;
    Site& site = member_.sites.emplace_back();
    site.offset = tensor.offset;
    site.cols = cut_.origin(r).spec.cols();
    site.places = cut_.places_of(r);
    site.value = member_.store->make(type, {r.rows(), r.cols()});
    if (const auto scale = member_.keep.norm_scale.find(r.name); scale != member_.keep.norm_scale.end())
      site.scale = scale->second;
    Param p = r.param(dense_weight(site.value));
    p.grad = grad(site);
    site_of_[r.name] = member_.sites.size() - 1;
    return p;
  }
  Param again(const nn::ParamRequest& r, const Param& given) override {
    Param p = given;
    p.grad = grad(member_.sites[site_of_.at(r.name)]);
    return p;
  }

 private:
  MutView grad(Site& site) const { return site.grads.emplace_back(member_.store->make(DType::f32, site.value.shape)); }

  models::MasterWeights& masters_;
  prune::CutSource& cut_;
  Member& member_;
  std::map<std::string, size_t> site_of_;
};

bool NestedModels::is_whole(const models::Config& config, const prune::Budget& budget) {
  return budget.sizes == prune::full_sizes(config) && budget.norm_scale.empty();
}

NestedModels::NestedModels(const Recipe& recipe, const io::ModelPath& origin, models::MasterWeights& masters,
                           models::Model& whole)
    : masters_(masters),
      whole_(whole),
      seed_(static_cast<uint64_t>(recipe.seed)),
      recipe_(recipe.nest),
      steps_(recipe.steps) {
  const models::Config& config = whole.config();
  const models::OpenFolder folder = models::open_folder(origin);
  const prune::Layouts layouts(config, folder.source.get());
  nested_ = prune::read_nested(origin.folder, config, layouts);
  file_ = sys::read_file((origin.folder / prune::kNestedFile).string());
  for (size_t i = 0; i < recipe_.budgets.size(); ++i) {
    Member& m = members_.emplace_back();
    m.budget = nested_.find("nest.budgets", fmt::format("{}", recipe_.budgets[i]));
    m.routed = recipe_.router && m.budget.share < 1;
    if (!recipe_.sampling.empty()) m.weight = recipe_.sampling[i];
  }
  if (recipe_.router) routed_ = std::make_unique<Routed>(config, folder, masters, nested_, members_, seed_);
  for (Member& m : members_) {
    if (m.routed || is_whole(config, m.budget)) continue;
    m.keep = prune::keep_of(config, layouts, m.budget);
    m.store = std::make_unique<WeightStore>();
    prune::CutSource cut(*folder.source, layouts, m.keep, *m.store);
    Prefixes source(masters, cut, m);
    m.model = std::make_unique<models::Model>(prune::resized(config, m.budget.sizes, m.keep.layers), source);
  }
}

namespace {

constexpr const char* kRouterFile = "nest_router.safetensors";

// Of every axis the size that is nearest to the budget's.
std::vector<size_t> start_of(const prune::SoftSizes& sizes, const prune::Budget& budget) {
  std::vector<size_t> start;
  for (const prune::SoftAxis& axis : sizes.axes()) {
    const auto distance = [&](int64_t size) { return std::abs(size - budget.sizes[axis.axis]); };
    const auto nearest = std::ranges::min_element(axis.sizes, {}, distance);
    start.push_back(static_cast<size_t>(nearest - axis.sizes.begin()));
  }
  return start;
}

template <class Members>
std::vector<std::vector<size_t>> starts_of(const prune::SoftSizes& sizes, const Members& members) {
  std::vector<std::vector<size_t>> starts;
  starts.reserve(members.size());
  for (const auto& m : members) starts.push_back(start_of(sizes, m.budget));
  return starts;
}

}  // namespace

NestedModels::Routed::Routed(const models::Config& config, const models::OpenFolder& folder,
                             models::MasterWeights& masters, const prune::Nested& nested,
                             const std::vector<Member>& members, uint64_t seed)
    : layouts(config, folder.source.get()),
      sizes(config, layouts, nested, "nest.router"),
      router(sizes.axes(), starts_of(sizes, members), seed),
      masked(config, folder, layouts, masters) {
  sizes.set(sizes.smallest());
  const double least = sizes.cost();
  for (const Member& m : members) {
    if (m.budget.share < least)
      fail("nest.budgets", {.what = fmt::format("routers cannot make {} that small", printable(m.budget.name)),
                            .got = fmt::format("{:.4g} with the least of every axis", least),
                            .expected = fmt::format("{:g} of the {}", m.budget.share, nested.measure),
                            .hint = "nest.router=false"});
  }
}

size_t NestedModels::draw(int64_t step) const {
  double sum = 0;
  for (const Member& m : members_) sum += m.weight;
  const RandomKey key{.seed = seed_, .stream = kStream};
  double at = sum * static_cast<double>(uniform(philox(key, static_cast<uint64_t>(step))[0]));
  size_t last = 0;  // that is ever drawn
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].weight == 0) continue;
    last = i;
    at -= members_[i].weight;
    if (at < 0) break;
  }
  return last;
}

double NestedModels::bytes() const {
  double sum = routed_ ? routed_->masked.bytes() : 0;
  for (const Member& m : members_) {
    for (const Site& s : m.sites) {
      sum += static_cast<double>(s.value.bytes());
      for (const MutView& g : s.grads) sum += static_cast<double>(g.bytes());
      for (const prune::Places& p : s.places)
        sum += static_cast<double>((p.rows.size() + p.cols.size()) * sizeof(int64_t));
    }
  }
  return sum;
}

void NestedModels::take_values(size_t budget, int threads, std::optional<int64_t> step) {
  if (members_[budget].routed) {
    NestRouter& router = routed_->router;
    routed_->sizes.set(step ? router.draw(budget, *step, steps_) : router.best(budget));
    return routed_->masked.take_values(routed_->sizes, threads);
  }
  const std::vector<Site>& sites = members_[budget].sites;
  const std::span<const float> values = masters_.values();
  const std::span<const Bf16> rounded = masters_.rounded();
  sys::parallel_for(threads, std::ssize(sites), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Site& s = sites[static_cast<size_t>(i)];
      const auto copy = [&s](auto from, auto* to) {
        each_value(s.offset, s.cols, s.places, [&](size_t whole, size_t own, size_t) { to[own] = from[whole]; });
      };
      if (s.value.dtype == DType::bf16) {
        copy(rounded, s.value.as<Bf16>());
        continue;
      }
      auto* to = s.value.as<float>();
      copy(values, to);
      for (size_t c = 0; c < s.scale.size(); ++c) to[c] *= s.scale[c];  // of a vector
    }
  });
}

void NestedModels::add_gradients(size_t budget, int threads) {
  if (members_[budget].routed) return routed_->masked.add_gradients(routed_->sizes, threads);
  std::vector<Site>& sites = members_[budget].sites;
  const std::span<float> sums = masters_.grads();
  sys::parallel_for(threads, std::ssize(sites), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Site& s = sites[static_cast<size_t>(i)];
      auto* first = s.grads[0].as<float>();
      for (size_t use = 1; use < s.grads.size(); ++use) {
        auto* more = s.grads[use].as<float>();
        for (int64_t k = 0; k < s.value.count(); ++k) first[k] += std::exchange(more[k], 0.0f);
      }
      each_value(s.offset, s.cols, s.places, [&](size_t whole, size_t own, size_t col) {
        sums[whole] += (s.scale.empty() ? 1.0f : s.scale[col]) * std::exchange(first[own], 0.0f);
      });
    }
  });
}

void NestedModels::learn(size_t budget, double lr, const std::function<void(std::span<double>)>& add_up) {
  if (!members_[budget].routed) return;
  prune::SoftSizes& sizes = routed_->sizes;
  prune::Shares slopes = sizes.take_slopes();
  for (std::vector<double>& axis : slopes) add_up(axis);
  const double share = members_[budget].budget.share;
  sizes.cost((sizes.cost() > share ? 1 : -1) * recipe_.router_cost / share);
  const prune::Shares costs = sizes.take_slopes();
  for (size_t a = 0; a < slopes.size(); ++a) {
    for (size_t j = 0; j < slopes[a].size(); ++j) slopes[a][j] += costs[a][j];
  }
  routed_->router.learn(slopes, recipe_.router_lr * lr);
}

prune::Budget NestedModels::routed_budget(size_t budget) const {
  const prune::Budget& was = members_[budget].budget;
  prune::Budget is = routed_->sizes.budget(routed_->router.best(budget));
  is.name = was.name;
  is.share = was.share;
  return is;
}

std::vector<std::string> NestedModels::describe_sizes() const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].routed) continue;
    const prune::Budget b = routed_budget(i);
    std::string line = fmt::format("budget {}:", printable(b.name));
    for (const prune::SoftAxis& axis : routed_->sizes.axes())
      line += fmt::format(" {} {}/{}", prune::name_of(axis.axis), b.sizes[axis.axis], axis.sizes.back());
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string NestedModels::sizes_file() const {
  if (!routed_) return file_;
  prune::Nested nested = nested_;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].routed) continue;
    const prune::Budget own = routed_budget(i);
    for (prune::Budget& b : nested.budgets) {
      if (b.name == own.name) b = own;
    }
  }
  return prune::nested_text(nested);
}

void NestedModels::write_state(const std::filesystem::path& folder) const {
  if (routed_) routed_->router.write(folder / kRouterFile);
}

// With --force a run may go on from one without routers, which its manifest shows.
void NestedModels::read_state(const std::filesystem::path& folder) {
  if (!routed_) return;
  const std::filesystem::path manifest = folder / "manifest.json";
  const bool had =
      !std::filesystem::exists(manifest) || io::Json::read(manifest).bool_of({"nest.router"}).value_or(false);
  if (had || std::filesystem::exists(folder / kRouterFile)) routed_->router.read(folder / kRouterFile);
}

const char* NestedModels::metric(std::string_view name, size_t budget) {
  return names_.insert(fmt::format("{}_{:g}", name, share(budget))).first->c_str();
}

}  // namespace braid::train
