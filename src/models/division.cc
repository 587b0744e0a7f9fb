#include "models/division.h"

#include <limits>
#include <numeric>
#include <string>

#include "models/count.h"
#include "models/cut.h"
#include "sys/error.h"

namespace braid::models {
namespace {

// Channels that stay together, as nn::load_mlp counts them.
int64_t channel_units(int64_t width) { return width % 16 == 0 ? width / 16 : width; }
int64_t channels_of(int64_t width, const Cut& cut) {
  const int64_t units = channel_units(width);
  return share_of(units, cut.rank, cut.ranks).count * (width / units);
}

// What keeps a block from being divided; empty: nothing.
struct Obstacle {
  int64_t tp, experts, parts, all;  // ranks that share heads, whole experts, an expert's width, a shared expert

  static std::string of_heads(const char* block, int64_t heads, int64_t shared, const char* of, int64_t ranks) {
    if (heads_fit(heads, shared, ranks)) return "";
    return fmt::format("{} heads of {} that share {} {}", heads, block, shared, of);
  }
  static std::string of_channels(const char* block, int64_t width, int64_t ranks) {
    if (channel_units(width) >= ranks) return "";
    return fmt::format("{} channels of {}, in units of {}", width, block, width / channel_units(width));
  }
  std::string operator()(const nn::Mamba2Spec& m) const { return of_heads("Mamba", m.heads, m.groups, "groups", tp); }
  std::string operator()(const nn::AttentionSpec& a) const {
    return of_heads("attention", a.heads, a.kv_heads, "keys and values", tp);
  }
  std::string operator()(const nn::MlpSpec& f) const { return of_channels("an MLP", f.width, tp); }
  std::string operator()(const nn::MoeSpec& e) const {
    if (e.experts < experts) return fmt::format("{} experts", e.experts);
    const std::string width = of_channels("an expert", e.width, parts);
    return !width.empty() || e.shared_width == 0 ? width : of_channels("a shared expert", e.shared_width, all);
  }
  std::string operator()(const LinearSpec&) const { return ""; }  // stays whole
};

std::string obstacle(const Config& config, const Division& d) {
  std::string first = config.vocab < d.tp ? fmt::format("{} rows of the vocabulary", config.vocab) : "";
  const Obstacle of{d.tp, d.ep, d.stage_ranks() / d.ep, d.stage_ranks()};
  each_part(config, [&](const PartSpec& part) {
    if (first.empty()) first = std::visit(of, part.block);
  });
  return first;
}

bool nests(const Division& d) { return d.tp % d.ep == 0 || d.ep % d.tp == 0; }

// The nearest number of ranks with which nothing is in the way, the larger of two.
int64_t nearest(const Config& config, const Division& d, int64_t Division::*axis) {
  constexpr int64_t kMost = 256;
  int64_t best = 1;
  for (int64_t n = 1; n <= kMost; ++n) {
    Division other = d;
    other.*axis = n;
    if (std::abs(n - d.*axis) <= std::abs(best - d.*axis) && nests(other) && obstacle(config, other).empty()) best = n;
  }
  return best;
}

// Of this rank.
struct Part {
  const Division& d;
  int64_t rank;

  bool operator()(nn::Mamba2Spec& m) const {
    if (d.tp == 1) return false;
    take_heads(m, d.tensor(rank));
    return true;
  }
  bool operator()(nn::AttentionSpec& a) const {
    if (d.tp == 1) return false;
    take_heads(a, d.tensor(rank));
    return true;
  }
  bool operator()(nn::MlpSpec& f) const {
    if (d.tp == 1) return false;
    f.width = channels_of(f.width, d.tensor(rank));
    return true;
  }
  bool operator()(nn::MoeSpec& e) const {
    if (d.stage_ranks() == 1) return false;
    const ExpertCut cut = d.experts(rank);
    if (d.ep > 1) e.own = cut.own(e.experts);
    e.width = channels_of(e.width, cut.etp);
    if (e.shared_width > 0) e.shared_width = channels_of(e.shared_width, d.of_stage(rank));
    return true;
  }
  bool operator()(LinearSpec&) const { return false; }
};

Stage stage_of(const Config& whole, const Division& d, int64_t stage) {
  Config one = whole;  // with one layer at a time
  for (LayerSpec& layer : one.layers) layer.parts.clear();
  const auto active = [&] { return static_cast<double>(count_parameters(one).active); };
  const double none = active();
  std::vector<double> costs;
  for (size_t i = 0; i < one.layers.size(); ++i) {
    one.layers[i] = whole.layers[i];
    costs.push_back(active() - none);
    one.layers[i].parts.clear();
  }
  const double head = static_cast<double>(whole.vocab) * static_cast<double>(whole.hidden);
  const std::vector<Range> runs = split_layers(costs, head, d.pp);
  return {.runs = {runs[static_cast<size_t>(stage)]}, .first = stage == 0, .last = stage == d.pp - 1};
}

}  // namespace

void check_division(const Config& config, const Division& d) {
  if (d.ranks() == 1) return;
  const char* flag = d.tp > 1 ? "--tp" : d.ep > 1 ? "--ep" : "--pp";
  if (config.loop) fail(flag, {.what = "cannot be used with recurrent depth", .hint = "one rank"});
  if (d.ep > 1 && !has_experts(config)) fail("--ep", {.what = "the model has no experts", .hint = "--tp"});
  if (!nests(d)) {
    fail("--ep", {.what = "does not fit --tp",
                  .got = fmt::format("{} and {}", d.ep, d.tp),
                  .expected = fmt::format("a divisor or a multiple of {}", d.tp),
                  .hint = fmt::format("--ep {}", d.tp)});
  }
  if (const auto layers = std::ssize(config.layers); d.pp > layers) {
    fail("--pp", {.what = "there are more stages than layers",
                  .got = std::to_string(d.pp),
                  .expected = fmt::format("at most {}", layers),
                  .hint = fmt::format("--pp {}", layers)});
  }
  const std::string first = obstacle(config, d);
  if (first.empty()) return;
  const bool experts = d.ep > 1 && obstacle(config, {.tp = d.tp}).empty();
  const int64_t n = nearest(config, d, experts ? &Division::ep : &Division::tp);
  fail(experts ? "--ep" : "--tp",
       {.what = "does not divide the model",
        .got = fmt::format("{} for {}", experts ? d.ep : d.tp, first),
        .expected = experts ? "for every rank an expert, and channels of what it shares"
                            : "for every rank whole groups of heads, or heads of one, and channels",
        .hint = fmt::format("{} {}", experts ? "--ep" : "--tp", n)});
}

Config divided_config(const Config& whole, const Division& d, int64_t rank) {
  Config config = d.pp == 1 ? whole : stage_config(whole, stage_of(whole, d, d.stage(rank)));
  each_part(config, [&](PartSpec& part) { part.cut = std::visit(Part{d, rank}, part.block); });
  config.cut = d.tensor(rank);
  config.expert_cut = d.experts(rank);
  return config;
}

// best[r][n]: the least cost of the costliest of r runs over the first n layers.
std::vector<Range> split_layers(std::span<const double> costs, double last, int64_t runs) {
  const auto layers = costs.size(), parts = static_cast<size_t>(runs);
  CHECK(parts >= 1 && parts <= layers, "{} runs of {} layers", runs, layers);
  std::vector<double> before(layers + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  const std::vector<double> never(layers + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> best(parts + 1, never);
  std::vector<std::vector<size_t>> begin(parts + 1, std::vector<size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (size_t r = 1; r <= parts; ++r) {
    for (size_t n = r; n <= layers; ++n) {
      for (size_t from = r - 1; from < n; ++from) {
        const double own = before[n] - before[from] + (n == layers ? last : 0);
        const double most = std::max(best[r - 1][from], own);
        if (most < best[r][n]) best[r][n] = most, begin[r][n] = from;
      }
    }
  }
  std::vector<Range> list(parts);
  for (size_t r = parts, end = layers; r > 0; end = begin[r--][end]) {
    const auto from = static_cast<int64_t>(begin[r][end]);
    list[r - 1] = {from, static_cast<int64_t>(end) - from};
  }
  return list;
}

}  // namespace braid::models
